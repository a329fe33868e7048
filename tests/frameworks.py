"""Find the frameworks that the adapters and the MCP server need. Tests that use one have the marker `clients`."""

import re
from importlib.util import find_spec

FRAMEWORKS = ("agents", "langchain", "langgraph", "mcp", "pydantic_ai")
MISSING = [name for name in FRAMEWORKS if find_spec(name) is None]
SDKS_MISSING = [name for name in ("anthropic", "openai") if find_spec(name) is None]
FOLDERS = {"mcp_server": "mcp", "inspector": "playwright"}
"""The folders of tests that cannot be collected without a package of their tier."""
_USE = re.compile(
    rf"^\s*(?:from|import) (?:{'|'.join(FRAMEWORKS)})\b"
    r"|quire\.adapters\.(?:langchain|langgraph|openai_agents|pydantic_ai)|quire\.mcp_server|\bquire mcp\b",
    re.MULTILINE,
)


def uses_framework(text: str) -> bool:
    """Return True if a program uses a framework of the tier `clients`."""
    return bool(_USE.search(text))
