"""Options of the whole suite."""

import pytest

pytest.register_assert_rewrite("quire.testing", "tests.storage.folders")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked slow, and longer forms of others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="a long proof: run it with --long")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
