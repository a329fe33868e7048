"""The packages of the tiers `clients` and `servers`, and the folders of tests that need one."""

import re
from importlib.util import find_spec

FRAMEWORKS = ("agents", "anthropic", "langchain", "langgraph", "mcp", "openai", "pydantic_ai")
MISSING = [name for name in (*FRAMEWORKS, "playwright") if find_spec(name) is None]
FOLDERS = {
    "adapters": ("anthropic", "clients"),
    "inspector": ("playwright", "servers"),
    "mcp_server": ("mcp", "clients"),
    "strict_provider": ("anthropic", "clients"),
    "test_described_requests.py": ("schemathesis", "servers"),
    "test_sdk.py": ("openai", "clients"),
    "test_service.py": ("openai", "servers"),
    "test_stub_provider.py": ("openai", "clients"),
}
"""The folders and files of tests that cannot be collected without a package, and their tier."""
_USE = re.compile(
    rf"^\s*(?:from|import) (?:{'|'.join(FRAMEWORKS)})\b"
    r"|quire\.adapters\.|quire\.mcp_server|\bquire mcp\b",
    re.MULTILINE,
)


def uses_framework(text: str) -> bool:
    """Return True if a program uses a framework of the tier `clients`."""
    return bool(_USE.search(text))
