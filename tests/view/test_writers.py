"""Views beside other writers: no view is above the budget, and none fails, whatever others write."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.view.fold.fit_budget import BudgetFitter
from tests.marks import broad
from tests.servers.postgres import postgres_url
from tests.view.view_writers import BUDGET, CONTEXT

PROGRAM = Path(__file__).with_name("view_writers.py")
PROCESSES = 4
LONG = 8


def sizes_of_views(url: str, writers: int, steps: int) -> list[tuple[int, int]]:
    """Run the writers at the same time and return the sizes of all their views."""
    quire.open(url, CONTEXT, budget=BUDGET).close()
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), url, str(seed), str(steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(writers)
    ]
    started = [process.stdout.readline() for process in processes if process.stdout is not None]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * writers, [errors for _, errors in ended]
    assert started == ["ready\n"] * writers
    return [size for out, _ in ended for size in json.loads(out)]


@pytest.mark.parametrize("backend", ["sqlite", *broad("postgres")])
def test_no_view_is_above_the_budget_beside_other_processes(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    long = bool(request.config.getoption("--long", default=False))
    url = f"sqlite:{tmp_path}/store.db" if backend == "sqlite" else postgres_url()
    writers, steps = (LONG, 300) if long else (PROCESSES, 40)
    sizes = sizes_of_views(url, writers, steps)
    assert len(sizes) > writers * steps / 3
    assert max(tokens for tokens, _ in sizes) <= BUDGET
    assert all(tokens == parts for tokens, parts in sizes)
    with quire.open(url, CONTEXT, create=False) as ctx:
        assert any(entry.operation == "fold" for entry in ctx.history())
        assert ctx.check() == []


@pytest.mark.parametrize("conflicts", [True, False])
def test_a_view_is_drawn_from_what_was_fitted(monkeypatch: pytest.MonkeyPatch, conflicts: bool) -> None:
    """Another handle writes a large note after the fold was planned, or just after it was committed."""
    storage = quire.MemoryStorage()
    ctx, other = (quire.open(storage, budget=BUDGET) for _ in range(2))
    for number in range(30):
        ctx.user(f"Question {number}: " + "what does the flight cost? " * 10)
    fit, written = BudgetFitter.fit, []

    def interrupted(fitter: BudgetFitter, *arguments: Any, **options: Any) -> int:
        total = fit(fitter, *arguments, **options)
        if conflicts:
            write()
        return total

    def write(*_: object) -> None:
        other.refresh()
        written.append(other.pages.create_detail_page("Note", "", "a long note " * 200, "mem-0"))

    monkeypatch.setattr(BudgetFitter, "fit", interrupted)
    if not conflicts:
        ctx.on_fold(write)
    view = ctx.render()
    assert written
    assert view.tokens == sum(part.tokens for part in view.parts) <= BUDGET
    assert conflicts or written[0] not in [page.index for page in view.pages]
    assert (view.fold is None) is conflicts
    monkeypatch.undo()
    ctx.refresh()
    assert ctx.render().tokens <= BUDGET
    assert ctx.check() == []


def test_a_view_whose_parts_exceed_the_budget_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = quire.open("memory:", budget=BUDGET)
    ctx.user("Hello " * 2_000)
    monkeypatch.setattr(BudgetFitter, "_shrink_to_budget", lambda *_: 0)  # it claims that everything fits
    with pytest.raises(quire.IrreducibleFloor, match=r"usr-1 \(2,"):
        ctx.render()
