"""docs/cli.md documents every command with its arguments, its options and its examples."""

import re
from pathlib import Path

import pytest

from docs.commands import table_rows
from quire.cli.commands import ROWS, load

PAGE = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### quire ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))


def test_the_page_has_every_command_in_order() -> None:
    assert [*SECTIONS] == [*ROWS]


@pytest.mark.parametrize("name", ROWS)
def test_a_command_is_documented_with_its_arguments_and_examples(name: str) -> None:
    section = SECTIONS[name]
    written = re.findall(r"^\| `.*\|$", section, re.MULTILINE)
    assert written == list(table_rows(name))
    for example in load(ROWS[name]).examples:
        assert f"\n{example}\n" in section
    assert "JSON: " in section


@pytest.mark.parametrize("word", ["NO_COLOR", "FORCE_COLOR", "COLUMNS", "QUIRE_TOKEN"])
def test_environment_variables_are_documented(word: str) -> None:
    assert word in PAGE
