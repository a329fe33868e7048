"""Find the frameworks that the adapters need. Tests that need a missing one are skipped by name."""

import re
from importlib.util import find_spec

MISSING = [name for name in ("agents", "langchain", "langgraph", "mcp", "pydantic_ai") if find_spec(name) is None]
SDKS_MISSING = [name for name in ("anthropic", "openai") if find_spec(name) is None]
REASON = f"needs {', '.join(MISSING)}: pip install -e '.[dev]' brings the frameworks"
FOLDERS = ("adapters", "mcp_server")
"""The test folders that are left out if a framework is missing."""
SDK_FOLDER = "strict_provider"
"""The test folder that is left out if the SDK of a provider is missing."""
_USE = re.compile(
    rf"^\s*(?:from|import) (?:{'|'.join(MISSING)})\b"
    r"|quire\.adapters\.(?:langchain|langgraph|openai_agents|pydantic_ai)|quire\.mcp_server|\bquire mcp\b",
    re.MULTILINE,
)


def lacks_framework(text: str) -> bool:
    """Return True if a program uses a framework that is not installed."""
    return bool(MISSING and _USE.search(text))
