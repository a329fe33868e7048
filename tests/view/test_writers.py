"""Views beside other writers: no view is above the budget, and none fails, whatever others write."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest

import quire
from quire import Busy, Conflict, Context, EstimateCounter, View
from tests.marks import servers
from tests.servers.postgres import postgres_url

BUDGET = 1_500
WORDS = ["flight", "seat", "window", "price", "Seattle", "北京", "order", "ticket", "refund", "HAT136"]


def write_and_draw(url: str, seed: int, steps: int) -> list[tuple[int, int]]:
    """Make random writes, with a view after most of them. Return the tokens of each view, and those of its parts."""
    chance, sizes, notes = Random(seed), list[tuple[int, int]](), dict[int, str]()
    with quire.open(url, "shared", budget=BUDGET, counter=EstimateCounter()) as ctx:
        for _ in range(steps):
            kind, text = chance.randrange(6), " ".join(chance.choices(WORDS, k=chance.randrange(5, 170)))
            pages = ctx.pages if kind == 3 else ctx.agent
            try:
                if kind < 3:
                    (ctx.user if kind else ctx.assistant)(text)
                elif kind == 5:
                    ctx.refresh()
                elif kind in notes:
                    pages.set_detail(notes[kind], text)
                else:
                    notes[kind] = pages.create_detail_page(f"Note {seed}", text[:90], text, "mem-0")
            except (Conflict, Busy):
                ctx.refresh()
            if chance.random() < 0.6:
                sizes.append(measure(ctx.render()))
    return sizes


def measure(view: View) -> tuple[int, int]:
    return view.tokens, sum(part.tokens for part in view.parts)


@pytest.mark.parametrize("backend", ["sqlite", *servers("postgres")])
def test_no_view_is_above_the_budget_beside_other_processes(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:{tmp_path}/store.db" if backend == "sqlite" else postgres_url()
    writers, steps = (8, 300) if request.config.getoption("--long") else (2, 40)
    quire.open(url, "shared", budget=BUDGET).close()
    with ProcessPoolExecutor(writers, get_context("spawn")) as pool:
        asked = [pool.submit(write_and_draw, url, seed, steps) for seed in range(writers)]
        sizes = [size for one in asked for size in one.result()]
    assert len(sizes) > writers * steps / 3
    assert max(tokens for tokens, _ in sizes) <= BUDGET
    assert all(tokens == parts for tokens, parts in sizes)
    with quire.open(url, "shared", create=False) as ctx:
        assert list(ctx.history(operation="fold"))
        assert ctx.check() == []


class Interrupting(EstimateCounter):
    """A counter in which another handle writes a large note while a view is drawn."""

    def __init__(self) -> None:
        self.other: Context | None = None

    def count(self, text: str) -> int:
        if self.other is not None:
            other, self.other = self.other, None
            write_note(other)
        return super().count(text)


def write_note(other: Context) -> None:
    other.refresh()
    other.pages.create_detail_page("Note", "", "a long note " * 200, "mem-0")


@pytest.mark.parametrize("conflicts", [True, False])
def test_a_view_is_drawn_from_what_was_fitted(conflicts: bool) -> None:
    """Another handle writes before the fold is committed, or just after it."""
    storage, counter = quire.MemoryStorage(), Interrupting()
    ctx = quire.open(storage, budget=BUDGET, counter=counter)
    other = quire.open(storage, counter=EstimateCounter())
    for number in range(30):
        ctx.user(f"Question {number}: " + "what does the flight cost? " * 10)
    if conflicts:
        counter.other = other
    else:
        ctx.on_fold(lambda _: write_note(other))
    view = ctx.render()
    assert counter.other is None
    assert measure(view)[0] == measure(view)[1] <= BUDGET
    assert "mem-1" not in [page.index for page in view.pages]
    assert (view.fold is None) is conflicts
    ctx.refresh()
    assert ctx.render().tokens <= BUDGET
    assert "mem-1" in [page.index for page in ctx.pages.list_pages("mem")]
    assert ctx.check() == []
