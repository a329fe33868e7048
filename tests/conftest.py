"""Options of the whole suite, and what makes it quick: compile once, keep the folders of tests in memory."""

import gc
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.frameworks import FOLDERS, MISSING

pytest.register_assert_rewrite("quire.testing", "tests.storage.folders")

_MEMORY = Path("/dev/shm")
_ROOM = 4 * 2**30
"""The bytes that must be free there: a container may have no more than a few megabytes."""

# A worker and every program that a test starts would compile the library anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A killed process loses nothing that it wrote to either; to wait for a disk proves nothing more.
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked slow, and longer forms of others")
    parser.addoption("--node", action="store_true", help="run the tests marked node, with packages from npm")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what cannot even be imported; tests/test_frameworks.py says so by name."""
    return True if MISSING and collection_path.parent.name == "tests" and collection_path.name in FOLDERS else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skipped = {
        "slow": ("--long", pytest.mark.skip(reason="a long proof: run it with --long")),
        "node": ("--node", pytest.mark.skip(reason="a proof with packages from npm: run it with --node")),
    }
    for item in items:
        for keyword, (option, skip) in skipped.items():
            if keyword in item.keywords and not config.getoption(option):
                item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Tests and modules stay to the end: the collector of garbage need not look at them again and again."""
    gc.collect()
    gc.freeze()
