"""The line of a run: several neighbours in one line that says how many they are, what about, and how to open it."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from quire.core.reader import Reader
from quire.core.records import PageRecord
from quire.model.text import clip_at_word
from quire.view.sheets import Run, Sheets

SPAN = "…"
"""Between the first and the last page of a run."""
_SPELLINGS = ("…", "...", "..")
_NAME_LENGTHS = (40, 20, 10)
_WORDS = 3
_SAMPLE = 12
_WORD = re.compile(r"[^\W\d_]{3,20}")
_COMMON = frozenset(("and", "for", "from", "has", "not", "note", "page", "that", "the", "this", "was", "with", "you"))

Count = Callable[[str], int]


class RunLine(NamedTuple):
    """The line of a run, and the keys of its first and last page."""

    first: int
    last: int
    text: str


def draw_run(sheets: Sheets, reader: Reader, run: Run, count: Count, most: int) -> RunLine | None:
    """Return the line of a run in at most so many tokens, if a line can be that short; None if the run is empty."""
    ends = sheets.ends(run)
    if ends is None:
        return None
    first, last = ends
    span = f"{reader.index(first.key)}{SPAN}{reader.index(last.key)} {run.pages or sheets.count(run)}p"
    names = [page.header.name for page in sheets.sample(run, _SAMPLE)]
    text = fit_run_line(span, first.header.name, last.header.name, names, count, most)
    return RunLine(first.key, last.key, text)


def draw_pages_run(reader: Reader, pages: Sequence[PageRecord], count: Count, most: int) -> str:
    """Return the line of these pages."""
    span = f"{reader.index(pages[0].key)}{SPAN}{reader.index(pages[-1].key)} {len(pages)}p"
    names = [page.header.name for page in pages]
    return fit_run_line(span, names[0], names[-1], names, count, most)


def fit_run_line(span: str, first: str, last: str, names: Iterable[str], count: Count, most: int) -> str:
    """Return a line of a span, its first and last name and the words they share. Shorten it to `most` tokens.

    Without a `last` name the line has only the first one.
    """
    words = frequent_words(names, f"{first} {last}")
    about = f": {', '.join(words)}" if words else ""
    tries = [(_NAME_LENGTHS[0], about), *((length, "") for length in _NAME_LENGTHS)]
    for length, end in tries:
        name = f"{_clip(first, length)} {SPAN} {_clip(last, length)}" if last else _clip(first, length)
        line = f"[{span}] {name}{end}\n"
        if count(line) <= most:
            return line
    return f"[{span}]\n"


def frequent_words(names: Iterable[str], shown: str) -> list[str]:
    """Return the words that occur most in names, without those that a line shows already."""
    known = {word.casefold() for word in _WORD.findall(shown)} | _COMMON
    counts: Counter[str] = Counter()
    for name in names:
        counts.update({word for found in _WORD.findall(name) if (word := found.casefold()) not in known})
    return [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_WORDS]]


def read_span(index: str) -> tuple[str, str] | None:
    """Return the first and last index in the name of a run, also if it is written with dots; None for another text."""
    for spelling in _SPELLINGS:
        first, found, last = index.partition(spelling)
        if found:
            return first.strip(), last.strip()
    return None


def clip_line(line: str, count: Count, most: int) -> int:
    """Return how many characters of a line with its line break fit in so many tokens; 0 if all of them do."""
    used = count(line)
    if used <= most:
        return 0
    length = len(line)
    while length > 16 and used > most:
        length = max(16, min(length - 1, int(length * most / used)))
        used = count(line[:length] + SPAN + "\n")
    return length


def _clip(name: str, length: int) -> str:
    return name if len(name) <= length else (clip_at_word(name, length - 1) or name[: length - 1]) + SPAN
