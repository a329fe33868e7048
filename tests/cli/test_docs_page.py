"""docs/cli.md documents every command with its arguments, its options and its examples."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.cli.command import build_parser
from quire.cli.commands import ROWS, load

PAGE = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### quire (\S+)\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE))


def parser(name: str) -> argparse.ArgumentParser:
    return build_parser(name, ROWS[name].summary, load(ROWS[name]))


def rows(name: str) -> Iterator[str]:
    """Yield the rows of a command's table as the page must have them."""
    for action in parser(name)._actions:
        if {"-h", "--json"} & set(action.option_strings):  # every command has them
            continue
        words = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            words += f" {action.metavar or '{' + ','.join(map(str, action.choices or ())) + '}'}"
        about = (action.help or "") % {**vars(action), "prog": f"quire {name}"}
        yield f"| `{words.replace('|', chr(92) + '|')}` | {about.replace('|', chr(92) + '|')} |"


def test_the_page_has_every_command_in_order() -> None:
    assert [*SECTIONS] == [*ROWS]


@pytest.mark.parametrize("name", ROWS)
def test_a_command_is_documented_with_its_arguments_and_examples(name: str) -> None:
    section = SECTIONS[name]
    written = re.findall(r"^\| `.*\|$", section, re.MULTILINE)
    assert written == list(rows(name))
    for example in load(ROWS[name]).examples:
        assert f"\n{example}\n" in section
    assert "JSON: " in section


@pytest.mark.parametrize("word", ["NO_COLOR", "FORCE_COLOR", "COLUMNS", "QUIRE_TOKEN"])
def test_environment_variables_are_documented(word: str) -> None:
    assert word in PAGE
