"""Updates the tables and examples of docs/cli.md from the parsers of the commands: `python -m docs.commands`."""

import re
from collections.abc import Iterator
from pathlib import Path

from quire.cli.command import build_parser
from quire.cli.commands import ROWS, load

PAGE = Path(__file__).parent / "cli.md"
_TABLE = re.compile(r"\| \| \|\n\|---\|---\|\n(?:\| `.*\|\n)*")


def table_rows(name: str) -> Iterator[str]:
    """Yield the rows of a command's table: each argument with its help."""
    for action in build_parser(name, ROWS[name].summary, load(ROWS[name]))._actions:
        if {"-h", "--json"} & set(action.option_strings):  # every command has them
            continue
        words = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            words += f" {action.metavar or '{' + ','.join(map(str, action.choices or ())) + '}'}"
        about = (action.help or "") % {**vars(action), "prog": f"quire {name}"}
        yield f"| `{words.replace('|', chr(92) + '|')}` | {about.replace('|', chr(92) + '|')} |"


def summary(name: str) -> str:
    """Return the first paragraph of a command's section."""
    text, about = ROWS[name].summary, load(ROWS[name]).about
    return f"{text[:1].upper()}{text[1:]}.{f' {about}' if about else ''}"


def update(page: str) -> str:
    """Return the page with the current tables."""
    for name in ROWS:
        start = page.index(f"### quire {name}\n")
        end = page.find("\n## ", start) if page.find("\n### ", start) < 0 else page.find("\n### ", start)
        section = page[start:end] if end > 0 else page[start:]
        table = "".join(f"{row}\n" for row in ("| | |", "|---|---|", *table_rows(name)))
        page = page.replace(section, _TABLE.sub(lambda _, table=table: table, section, count=1))  # type: ignore[misc]
    return page


if __name__ == "__main__":
    PAGE.write_text(update(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
