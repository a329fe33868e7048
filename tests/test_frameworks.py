"""The frameworks of the adapters and the MCP server are installed; if not, this test names the missing ones."""

import os
from pathlib import Path

import pytest

from tests.frameworks import FOLDERS, MISSING, REASON, SDK_FOLDER, SDKS_MISSING, lacks_framework


@pytest.mark.skipif(bool(MISSING), reason=REASON)
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_frameworks_are_here(folder: str) -> None:
    assert list((Path(__file__).parent / folder).glob("test_*.py"))
    assert not lacks_framework("import mcp")


@pytest.mark.skipif(
    bool(SDKS_MISSING) and not os.environ.get("CI"),
    reason=f"needs {', '.join(SDKS_MISSING)}: pip install -e '.[test]' brings the SDKs",
)
def test_the_sdks_are_here() -> None:
    assert SDKS_MISSING == []
    assert list((Path(__file__).parent / SDK_FOLDER).glob("test_*.py"))
