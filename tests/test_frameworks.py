"""The frameworks of the adapters and the MCP server are installed; if not, this test names the missing ones."""

from pathlib import Path

import pytest

from tests.frameworks import FOLDERS, MISSING, REASON, lacks_framework


@pytest.mark.skipif(bool(MISSING), reason=REASON)
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_frameworks_are_here(folder: str) -> None:
    assert list((Path(__file__).parent / folder).glob("test_*.py"))
    assert not lacks_framework("import mcp")
