"""The page on peers: every answer has its source, every test of quire that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/peers.md").read_text(encoding="utf-8")
TEXT, SOURCES = PAGE.partition("\n[lc-readme]: ")[::2]
DEFINED = dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", f"[lc-readme]: {SOURCES}", re.MULTILINE))
NOT_FOUND = "not found"


def tables() -> list[list[list[str]]]:
    """Return the comparison tables: rows of cells, the header first."""
    blocks = re.findall(r"^\| \|.*\n(?:\|.*\n)+", TEXT, re.MULTILINE)
    return [[split(line) for line in block.splitlines() if "|---" not in line] for block in blocks]


def split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def test_every_table_has_the_same_projects_and_no_empty_cell() -> None:
    assert len(tables()) == 5
    names = [[row[0] for row in table[1:]] for table in tables()]
    assert all(each == names[0] for each in names)
    assert names[0][0] == "**quire**"
    assert [row for table in tables() for row in table if len(row) != len(table[0])] == []
    assert [row for table in tables() for row in table[1:] if not all(row)] == []


def test_every_answer_leads_to_its_source_or_says_that_none_was_found() -> None:
    for table in tables():
        for row in table[1:]:
            for asked, answer in zip(table[0][1:], row[1:], strict=True):
                known = "](" in answer or "][" in answer or answer in (NOT_FOUND, "Python, MIT")
                assert known, f"{row[0]}, {asked}: {answer}"


def test_no_answer_is_a_plain_no_without_a_source() -> None:
    cells = [cell for table in tables() for row in table[1:] for cell in row[1:]]
    assert [cell for cell in cells if cell.lower() in ("no", "-", "–")] == []
    assert NOT_FOUND in cells


def test_every_source_is_a_public_page_and_every_one_is_used() -> None:
    used = set(re.findall(r"\]\[([\w-]+)\]", TEXT))
    assert used == set(DEFINED)
    hosts = {re.sub(r"^https://([^/]+)/.*$", r"\1", link) for link in DEFINED.values()}
    assert hosts == {"github.com", "docs.letta.com", "docs.langchain.com"}


def test_every_test_of_ours_that_is_named_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT)
    assert len(named) >= 20
    missing = [name for name in named if f"def {name[1]}(" not in (ROOT / name[0]).read_text(encoding="utf-8")]
    assert missing == []
