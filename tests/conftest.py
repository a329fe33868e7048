"""Options of the whole suite."""

import pytest

pytest.register_assert_rewrite("quire.testing", "tests.storage.folders")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests marked slow, and longer forms of others")
    parser.addoption("--node", action="store_true", help="run the tests marked node, with packages from npm")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skipped = {
        "slow": ("--long", pytest.mark.skip(reason="a long proof: run it with --long")),
        "node": ("--node", pytest.mark.skip(reason="a proof with packages from npm: run it with --node")),
    }
    for item in items:
        for keyword, (option, skip) in skipped.items():
            if keyword in item.keywords and not config.getoption(option):
                item.add_marker(skip)
