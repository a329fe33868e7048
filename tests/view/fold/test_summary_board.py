"""Model summaries with a handle for each turn: stored when they come, asked for once, and used by any handle."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import quire
from quire import CompressionConfig, aio
from quire.core import summary_board
from quire.core.summary_board import BOARDS, SummaryBoard, SummaryRecord, board_of
from quire.view.fold import summary_worker
from quire.view.fold.summaries import is_folded, page_version
from tests.marks import broad
from tests.servers.postgres import postgres_url

BUDGET = 1_500
MARK = "The model says"


def say(ctx: quire.Context, turn: int) -> bool:
    """Run a turn of a conversation. Return whether it folded."""
    ctx.user(f"Question {turn} about HAT{turn}. " + "I would like to know. " * 12)
    view = ctx.render()
    ctx.assistant(f"Answer {turn}: it is {turn + 5000}. " + "That is all. " * 12, view=view)
    return view.fold is not None


class Model:
    """A slow model. It counts how often it is asked for the same text."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.asked: Counter[str] = Counter()
        self.seconds = seconds

    def __call__(self, text: str, tokens: int) -> str:
        self.asked[text] += 1
        time.sleep(self.seconds)
        return f"{MARK} {len(self.asked)}."


def lines(ctx: quire.Context) -> list[str]:
    state = ctx.pages._engine.current()
    return [page.header.description for page in state.segment_pages() if is_folded(page)]


def board(ctx: quire.Context) -> dict[int, Any]:
    engine = ctx.pages._engine
    return SummaryBoard(engine.state.storage, ctx.name, engine.state.head.identity).read()


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def fold_once(library: quire.Library, start: int = 0, name: str = "talk", **options: Any) -> int:
    """Run turns, each with a new handle, until one folds. Return the number of the next turn."""
    for turn in range(start, start + 60):
        with library.turn(name, budget=BUDGET, **options) as ctx:
            if say(ctx, turn):
                return turn + 1
    raise AssertionError("nothing folded")


def test_120_turns_with_a_handle_each_use_what_a_slow_model_says(tmp_path: Path) -> None:
    model = Model(0.02)
    folds = 0
    with quire.Library(tmp_path / "a.db", summariser=model) as library:
        for turn in range(120):
            with library.turn("talk", budget=BUDGET) as ctx:
                folds += say(ctx, turn)
        library.summarise()
        wait_for(lambda: not any(not record.summary for record in board(library.open("talk")).values()))
        fold_once(library, 120)
        with library.open("talk") as ctx:
            said = sum(MARK in line for line in lines(ctx))
            assert ctx.check() == []
    asked = len(model.asked)
    assert folds > 5
    assert asked > 10
    assert set(model.asked.values()) == {1}  # none was paid twice
    assert said >= 0.9 * asked


def test_a_fold_by_a_handle_without_a_summariser_uses_them_too() -> None:
    with quire.Library("memory:", summariser=Model()) as library:
        turn = fold_once(library)
        wait_for(lambda: all(record.summary for record in board(library.open("talk")).values()))
        plain = quire.Library(library.storage)
        with plain.open("talk") as ctx:
            ready = board(ctx)
        fold_once(plain, turn)
        with plain.open("talk") as ctx:
            assert ready
            assert sum(MARK in line for line in lines(ctx)) == len(ready)
            assert board(ctx) == {}  # it asks for nothing itself


def test_a_summary_is_stored_after_its_context_and_its_store_were_closed(tmp_path: Path) -> None:
    go = threading.Event()
    asked = []

    def summarise(text: str, tokens: int) -> str:
        asked.append(text)
        assert go.wait(20)
        return f"{MARK} so."

    config = CompressionConfig(summariser=summarise)
    turn, folded = 0, False
    while not folded:
        with quire.open(tmp_path / "a.db", "talk", budget=BUDGET, compression=config) as ctx:
            folded = say(ctx, turn)
            turn += 1
    worker = ctx.summarising
    assert worker is not None
    go.set()
    assert worker.wait(20)
    assert not worker.errors
    with pytest.raises(quire.StorageClosed):
        ctx.pages.storage.head("talk")  # it is closed in the end
    with quire.Library(tmp_path / "a.db", summariser=summarise) as library, library.open("talk") as ctx:
        assert len(board(ctx)) == len(asked) > 1
        assert all(record.summary for record in board(ctx).values())
        assert library.summarise().stored == 0


def test_at_most_one_worker_asks_for_a_page(tmp_path: Path) -> None:
    go = threading.Event()
    model = Model()

    def slow(text: str, tokens: int) -> str:
        assert go.wait(20)
        return model(text, tokens)

    with quire.Library(tmp_path / "a.db", summariser=slow) as library:
        turn = fold_once(library)
        first = library.open("talk")
        pending = len(board(first))
        assert library.summarise(summariser=model).stored == 0  # a worker asks for all of them
        assert library.summarise(summariser=model).waiting == pending
        fold_once(library, turn)
        go.set()
        wait_for(lambda: all(record.summary for record in board(first).values()))
    assert set(model.asked.values()) == {1}


def test_a_claim_that_expired_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary_board, "CLAIM_SECONDS", 0.0)
    go = threading.Event()
    with quire.Library(
        tmp_path / "a.db", summariser=lambda _text, _tokens: "Late." if go.wait(20) else None
    ) as library:
        fold_once(library)
        time.sleep(0.01)
        report = library.summarise(summariser=Model())
        assert report.stored > 0
        go.set()
        with library.open("talk") as ctx:
            time.sleep(0.2)
            assert all(record.summary.startswith(MARK) for record in board(ctx).values())  # not replaced by late ones


def test_an_error_is_tried_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(text: str, tokens: int) -> str:
        raise ConnectionError("no model there")

    monkeypatch.setattr(summary_board, "_DELAY", 3_600.0)
    with quire.Library(tmp_path / "a.db", summariser=fails) as library:
        fold_once(library)
        with library.open("talk") as ctx:
            wait_for(lambda: all(record.tries == 1 and not record.claimant for record in board(ctx).values()))
            pending = len(board(ctx))
            assert pending > 3
            assert library.summarise(summariser=Model()).waiting == pending  # not now
            monkeypatch.setattr(summary_board, "now_milliseconds", lambda: time.time_ns() // 1_000_000 + 7_200_000)
            report = library.summarise()
            assert (report.stored, report.waiting) == (0, pending)
            assert [str(error) for error in report.errors] == ["no model there"] * 3  # the model is not there
            monkeypatch.setattr(summary_board, "now_milliseconds", lambda: time.time_ns() // 1_000_000 + 80_000_000)
            assert library.summarise(summariser=Model()).stored == pending


def test_answers_without_a_summary_are_no_errors(tmp_path: Path) -> None:
    def answer(text: str, tokens: int) -> None:
        asked.append(text)
        if len(asked) in (2, 3):
            raise ConnectionError("no model there")

    asked: list[str] = []
    with quire.Library(tmp_path / "a.db") as library:
        post(library, fold_once(library), "talk")
        with library.open("talk") as ctx:
            pending = len(board(ctx))
        report = library.summarise(summariser=answer)
    assert len(asked) == pending > 3
    assert (report.stored, report.waiting, len(report.errors)) == (0, 2, 2)


def test_a_board_that_cannot_be_written_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise quire.Conflict("Another worker was first.")

    monkeypatch.setattr(summary_board, "_CONFLICTS", 2)
    with quire.Library("memory:") as library:
        post(library, fold_once(library), "talk")
        with library.open("talk") as ctx:
            state = ctx.pages._engine.current()
            worker = SummaryBoard(state.storage, "talk", state.head.identity)
            key, record = next(iter(worker.read().items()))
            assert worker.claim(key, record.version)
            monkeypatch.setattr(state.storage, "commit", refuse)
            for change in (worker.claim, worker.put_off, lambda key, version: worker.store(key, version, "Text")):
                with pytest.raises(quire.Conflict):
                    change(key, record.version)
        report = library.summarise(summariser=Model())
        assert (report.stored, len(report.errors)) == (0, 1)


def test_work_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with quire.Library(tmp_path / "a.db") as library:
        with pytest.raises(quire.InvalidOperation, match="no summariser"):
            library.summarise()
        with pytest.raises(quire.InvalidValue, match="max_seconds is -1"):
            library.summarise(max_seconds=-1, summariser=Model())
        with pytest.raises(quire.InvalidValue, match="summariser is 5"):
            library.summarise(summariser=5)  # type: ignore[arg-type]
    with pytest.raises(quire.InvalidValue, match="summariser is 5"):
        quire.Library("memory:", summariser=5)  # type: ignore[arg-type]
    with quire.Library(tmp_path / "b.db") as library:
        for name in ("one", "two"):
            post(library, fold_once(library, name=name), name)
        model = Model()
        clock = SimpleNamespace(monotonic=lambda: 60.0 * model.asked.total())  # each answer takes a minute
        monkeypatch.setattr(summary_worker, "time", clock)
        pending = library.summarise(max_seconds=0, summariser=model).waiting
        assert pending >= 2
        report = library.summarise(max_seconds=30, summariser=model)
        assert (report.stored, report.waiting) == (1, pending - 1)
        assert library.summarise(summariser=model).stored == pending - 1
        assert library.summarise(summariser=model).stored == 0


def post(library: quire.Library, turn: int, name: str) -> None:
    """Put pages on the board as a worker that died: without a summary, and without a claim that holds."""
    with library.open(name) as ctx:
        state = ctx.pages._engine.current()
        pages = [page for page in state.segment_pages() if is_folded(page)]
        records = {page.key: SummaryRecord(page_version(state, page), 50) for page in pages}
        SummaryBoard(state.storage, name, state.head.identity).update(records)


def test_an_async_library_works_off_too(tmp_path: Path) -> None:
    async def answer(text: str, tokens: int) -> str:
        await asyncio.sleep(0)
        return f"{MARK} so."

    async def work() -> None:
        async with aio.Library(tmp_path / "a.db", summariser=answer) as library:
            running = asyncio.create_task(library.summarise())
            async with library.open("talk") as ctx:  # other calls do not wait
                await ctx.user("Hello?")
            assert (await running).stored == pending

    with quire.Library(tmp_path / "a.db") as library:
        post(library, fold_once(library), "talk")
        with library.open("talk") as ctx:
            pending = len(board(ctx))
    assert pending
    asyncio.run(work())


def test_what_is_erased_or_purged_leaves_no_summary(tmp_path: Path) -> None:
    go = threading.Event()

    def summarise(text: str, tokens: int) -> str:
        assert go.wait(20)
        return "KESTREL-4711 is the code."

    def stored() -> bytes:
        return b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file())

    with quire.Library(f"file:{tmp_path}/a", summariser=summarise) as library:
        for name in ("purged", "erased"):
            fold_once(library, name=name)
        library.erase("erased")  # while the model is asked
        go.set()
        ctx = library.open("purged")
        wait_for(lambda: all(record.summary for record in board(ctx).values()))
        assert b"KESTREL-4711" in stored()
        assert [name for name in library.storage.contexts() if name.startswith(BOARDS)] == [board_of("purged")]
        page = ctx.conversation.page_of(0)
        assert page is not None
        ctx.pages.purge(page)
        assert board(ctx) == {}
        assert b"KESTREL-4711" not in stored()
        assert list(library.list()) == ["purged"]
        library.expire(timedelta(0))
        assert list(library.storage.contexts()) == []


def test_a_context_that_was_created_again_gets_no_summary_of_the_old_one() -> None:
    go = threading.Event()
    with quire.Library(
        "memory:", summariser=lambda _text, _tokens: "Of the old one." if go.wait(20) else ""
    ) as library:
        fold_once(library)
        library.delete("talk")
        turn = fold_once(library)
        with library.open("talk") as ctx:
            assert len(board(ctx)) > 0
        go.set()
        with library.open("talk") as ctx:
            wait_for(lambda: all(record.summary for record in board(ctx).values()))
        fold_once(library, turn)
        with library.open("talk") as ctx:
            assert ctx.check() == []


def test_what_redact_removes_is_not_stored() -> None:
    with quire.Library(
        "memory:",
        summariser=lambda _text, _tokens: "The code is 4711.",
        redact=lambda text: text.replace("4711", "[code]"),
    ) as library:
        fold_once(library)
        with library.open("talk") as ctx:
            wait_for(lambda: all(record.summary for record in board(ctx).values()))
            assert {record.summary for record in board(ctx).values()} == {"The code is [code]."}


# Processes


def start(url: str, log: Path, name: str, turns: int, seconds: float) -> "subprocess.Popen[str]":
    program = Path(__file__).with_name("summary_process.py")
    return subprocess.Popen(
        [sys.executable, str(program), url, str(log), name, str(turns), str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_done(worker: "subprocess.Popen[str]") -> None:
    assert worker.stdout is not None
    assert worker.stdout.readline() == "done\n"


def asked_in(log: Path) -> Counter[str]:
    return Counter(line.partition(" ")[2] for line in log.read_text().splitlines())


@pytest.mark.parametrize("backend", ["sqlite", *broad("postgres")])
def test_several_processes_ask_once_and_use_what_comes(
    tmp_path: Path, request: pytest.FixtureRequest, backend: str
) -> None:
    is_long = request.config.getoption("--long")
    if backend == "postgres" and not is_long:
        pytest.skip("a server: only with --long")
    url = postgres_url() if backend == "postgres" else f"sqlite:{tmp_path}/a.db"
    log = tmp_path / "log"
    workers = [start(url, log, f"w{number}", 60 if is_long else 24, 0.02) for number in range(4 if is_long else 2)]
    for worker in workers:
        wait_done(worker)
    with quire.Library(url, summariser=Model()) as library:
        with library.open("talk") as ctx:
            wait_for(lambda: all(record.summary for record in board(ctx).values()))
        asked = asked_in(log)
        plain = quire.Library(library.storage)
        fold_once(plain, 1_000)
        with plain.open("talk") as ctx:
            said = sum(MARK in line for line in lines(ctx))
            assert ctx.check() == []
    for worker in workers:
        worker.communicate("\n")
    assert set(asked.values()) == {1}
    assert len(asked) > 5
    assert said >= 0.9 * len(asked)


@pytest.mark.slow
def test_the_pages_of_a_killed_process_are_asked_for_by_another(tmp_path: Path) -> None:
    url, log = f"sqlite:{tmp_path}/a.db", tmp_path / "log"
    first = start(url, log, "w", 20, 600)  # its model does not answer
    wait_done(first)
    with quire.Library(url) as library, library.open("talk") as ctx:
        pending = len(board(ctx))
        assert pending
        assert library.summarise(summariser=Model()).stored == 0
        first.send_signal(signal.SIGKILL)
        first.communicate()
        others = [start(url, log, "o", 0, 0.01) for _ in range(2)]
        for other in others:
            wait_done(other)
            other.communicate("\n")
        assert all(record.summary for record in board(ctx).values())
    by_process = Counter(line.partition(" ")[0] for line in log.read_text().splitlines())
    assert sum(count for process, count in by_process.items() if process != str(first.pid)) == pending
