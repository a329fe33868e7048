"""The storage reads of a view with many pages outside the conversation follow what is shown, not what there is."""

from collections.abc import Iterator
from typing import Any

import pytest

import quire
from quire import Context
from quire.storage.base import Family, Record
from quire.storage.memory import MemoryStorage
from tests.marks import broad

BETWEEN_FOLDS = 3
"""Records that a view may read after a message."""
WITH_A_PAGE = 2
"""Records that a view may read for each page that it shows, after a developer added a page."""
AT_A_FOLD = 25
"""Records that a fold may read for each page or line that it shows."""
TO_DIVIDE = 600
"""Records that a fold may read in any case, to divide the newest runs evenly."""


class CountingStorage(MemoryStorage):
    """Counts the records that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def get(self, context: str, family: Family, key: int) -> Record | None:
        self.read += 1
        return super().get(context, family, key)

    def scan(self, *arguments: Any, **options: Any) -> Iterator[Record]:
        return self._count(super().scan(*arguments, **options))

    def members(self, *arguments: Any, **options: Any) -> Iterator[Record]:
        return self._count(super().members(*arguments, **options))

    def _count(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            self.read += 1
            yield record


def fill(ctx: Context, kind: str, count: int) -> None:
    if kind == "notes":
        for number in range(count):
            ctx.pages.create_detail_page(f"note {number} on pumps", "", f"Text {number}.", "mem-0")
    elif kind == "folders":
        for number in range(count // 50):
            folder = ctx.pages.create_contents_page(f"folder {number}", "", "mem-0")
            for inner in range(50):
                ctx.pages.create_detail_page(f"note {inner} on pumps", "", f"Text {inner}.", folder)
    else:
        for number in range(min(300, count // 10)):
            ctx.pages.add_segment(quire.Segment(id=f"s{number}", name=f"Segment {number}"))
            for inner in range(10):
                ctx.pages.create_detail_page(f"note {inner} on pumps", "", f"Text {inner}.", f"s{number}-0")


@pytest.mark.parametrize("budget", [2_000, *broad(8_000, 128_000)])
@pytest.mark.parametrize("kind", ["notes", "folders", "segments"])
def test_a_view_reads_what_it_shows(kind: str, budget: int, request: pytest.FixtureRequest) -> None:
    count = 100_000 if request.config.getoption("--long") else 1_500
    storage = CountingStorage()
    ctx = quire.open(storage, budget=budget)
    fill(ctx, kind, count)
    ctx.user("Hello")
    ctx.render()
    between, with_page = [0], [0.0]
    folds: list[float] = []
    turn = 0
    while len(folds) < 3:
        turn += 1
        ctx.user(f"Turn {turn}: " + "word " * (budget // 8))
        if turn % 2:
            ctx.pages.create_detail_page(f"new {turn}", "", "A new text.", "mem-0" if kind != "segments" else "s0-0")
        storage.read = 0
        view = ctx.render()
        read, shown = storage.read, len(view.pages)
        ctx.assistant("Done.")
        if view.fold is not None:
            folds.append((read - TO_DIVIDE) / shown)
        elif turn % 2:
            with_page.append(read / shown)
        else:
            between.append(read)
    assert max(between) <= BETWEEN_FOLDS
    assert max(with_page) <= WITH_A_PAGE
    assert max(folds) <= AT_A_FOLD


def test_a_fold_reads_as_much_after_many_folds_as_after_a_few() -> None:
    storage = CountingStorage()
    ctx = quire.open(storage, "c", budget=2_000)
    ctx.pages.create_detail_page("note", "", "text", "mem-0")
    reads = []
    for number in range(600):
        ctx.user(f"message {number}: " + "word " * 60)
        storage.read = 0
        if ctx.render().fold is not None:
            reads.append(storage.read)
    assert len(reads) > 20
    assert sum(reads[-5:]) <= 2 * sum(reads[3:8]) + 50, reads
