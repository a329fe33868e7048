"""The tables of docs/agent.md agree with the data."""

import pytest

from quire.agent import AgentContext
from quire.agent.gate import OPERATIONS
from tests.agent.tables import PAGE, permissions, tools, written


def test_the_tables_of_the_page_are_those_of_the_data() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run: python -m tests.agent.tables"


def test_a_page_without_a_place_for_a_table_is_noticed() -> None:
    with pytest.raises(ValueError, match="no place"):
        written("# Nothing")


def test_a_table_that_says_otherwise_is_noticed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page.replace("✗", "✓")) != page.replace("✗", "✓")


def test_every_operation_is_in_the_table_and_on_the_face() -> None:
    for operation in OPERATIONS:
        assert f"`{operation}`" in permissions()
        assert operation == "window" or callable(getattr(AgentContext, operation))
    assert "`window`" in tools()
