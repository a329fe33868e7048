"""Options of the whole suite."""

from pathlib import Path

import pytest

from tests.frameworks import FOLDERS, MISSING

pytest.register_assert_rewrite("quire.testing", "tests.storage.folders")


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
