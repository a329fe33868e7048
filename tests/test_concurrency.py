"""Threads that share a context, handles and processes that share a store: nothing is lost, and no error is wrong."""

import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

import quire
from quire import (
    Conflict,
    Context,
    ContextSystem,
    DetailPage,
    EstimateCounter,
    FileStorage,
    InvalidValue,
    MemoryStorage,
    NoSuchContext,
    NoSuchPage,
    QuireError,
    Segment,
    SQLiteStorage,
    Storage,
    Visibility,
)
from tests.marks import long

PROGRAM = Path(__file__).with_name("writing.py")
THREADS = 8
EACH = 15
Opener = Callable[[], Storage]


@pytest.fixture(params=["memory", "file", "sqlite"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens handles on one store; for memory it is one object, which several handles of a process share."""
    match request.param:
        case "file":
            return lambda: FileStorage(tmp_path / "store")
        case "sqlite":
            return lambda: SQLiteStorage(tmp_path / "store")
        case _:
            shared = MemoryStorage()
            return lambda: shared


def book(storage: Storage, name: str = "book") -> Context:
    return quire.open(storage, name, counter=EstimateCounter())


def whole(system: ContextSystem, names: Iterable[str]) -> None:
    """Check that all these pages exist once with their texts, that the journal has no gap, and `check()` is empty."""
    leaves = [page for page in system.list_pages() if isinstance(page, DetailPage)]
    assert sorted(page.name for page in leaves) == sorted(names)
    assert {page.name: system.detail(page.index) for page in leaves} == {p.name: f"text of {p.name}" for p in leaves}
    assert [entry.seq for entry in system.history()] == list(range(1, system.seq + 1))
    assert system.check() == []


def at_once(*jobs: Callable[[], object]) -> None:
    """Run the jobs in threads and raise their errors."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


# Threads


def test_threads_share_a_context_and_lose_nothing(opener: Opener) -> None:
    storage = opener()
    system = book(storage).pages
    folders = [system.create_contents_page(f"folder {n}", "", "mem-0") for n in range(3)]

    def work(number: int) -> None:
        face = system.acting_as(f"thread {number}")
        for turn in range(EACH):
            name = f"{number}-{turn}"
            index = face.create_detail_page(name, "", f"text of {name}", folders[turn % 3])
            face.hide(index)
            face.move_page(index, folders[number % 3])
            assert face.get_page(index).visibility is Visibility.HIDDEN

    at_once(*(lambda number=number: work(number) for number in range(THREADS)))
    whole(system, [f"{number}-{turn}" for number in range(THREADS) for turn in range(EACH)])
    assert {entry.actor for entry in system.history()} >= {f"thread {number}" for number in range(THREADS)}
    assert sum(system.child_count(folder) for folder in folders) == THREADS * EACH
    again = book(opener()).pages
    assert again.marshal() == system.marshal()
    storage.close()


def test_threads_read_while_others_write(opener: Opener) -> None:
    storage = opener()
    system = book(storage).pages
    for number in range(30):
        system.create_detail_page(f"first {number}", "", f"text of first {number}", "mem-0")
    done = Event()

    def write() -> None:
        try:
            for number in range(12):
                system.add_segment(Segment(id=f"s{number}"))
                index = system.create_detail_page(f"later {number}", "", f"text of later {number}", f"s{number}-0")
                system.move_page(index, "mem-0")
                system.undo(system.seq)
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            indices = [page.index for page in system.list_pages("mem")]
            assert len(indices) >= 31
            assert len(list(system.walk("mem-0"))) >= 31
            seqs = [entry.seq for entry in system.history()]
            assert seqs == list(range(1, len(seqs) + 1))
            assert len(system.find("text")) == 10
            assert system.detail("mem-1") == "text of first 0"
            system.marshal()

    at_once(write, read, read)
    whole(system, [f"first {number}" for number in range(30)] + [f"later {number}" for number in range(12)])
    storage.close()


# Two handles


def test_the_second_writer_meets_conflict_refreshes_and_retries(opener: Opener) -> None:
    storages = opener(), opener()
    first, second = (book(storage).pages for storage in storages)
    first.create_detail_page("one", "", "text of one", "mem-0")
    before = second.seq
    with pytest.raises(Conflict):
        second.create_detail_page("two", "", "text of two", "mem-0")
    assert second.seq == before
    assert second.refresh() is True
    assert second.refresh() is False
    assert second.detail("mem-1") == "text of one"
    assert second.create_detail_page("two", "", "text of two", "mem-0") == "mem-2"
    with pytest.raises(Conflict):
        first.remove_page("mem-1")
    first.refresh()
    whole(first, ["one", "two"])
    whole(second, ["one", "two"])
    for storage in storages:
        storage.close()


def test_an_error_of_a_call_that_read_newer_records_is_a_conflict(opener: Opener) -> None:
    one = quire.open(opener(), "shared")
    for text in ("one", "two", "three"):
        one.user(text)
    two = quire.open(opener(), "shared")
    one.conversation.delete(2)
    one.user("four")
    newest = [message.index for message in two.messages()][-1]
    with pytest.raises(Conflict):
        two.conversation.delete(newest)
    two.refresh()
    assert [message.text for message in two.messages()] == ["one", "two", "four"]
    with pytest.raises(InvalidValue):
        two.conversation.delete(9)


def test_handles_on_different_contexts_never_conflict(opener: Opener) -> None:
    storages = opener(), opener()
    first, second = book(storages[0], "a").pages, book(storages[1], "b").pages
    for number in range(20):
        first.create_detail_page(f"a{number}", "", f"text of a{number}", "mem-0")
        second.create_detail_page(f"b{number}", "", f"text of b{number}", "mem-0")
    whole(first, [f"a{number}" for number in range(20)])
    whole(second, [f"b{number}" for number in range(20)])
    for storage in storages:
        storage.close()


def test_a_handle_that_was_not_refreshed_can_still_read(opener: Opener) -> None:
    """A reader may get older or newer data, but never an error with a wrong statement."""
    storages = opener(), opener()
    writer, reader = (book(storage).pages for storage in storages)
    writer.create_contents_page("folder", "", "mem-0")
    writer.create_detail_page("leaf", "", "text", "mem-1")
    reader.refresh()
    assert reader.detail("mem-2") == "text"
    writer.remove_page("mem-1")
    with pytest.raises(NoSuchPage):
        writer.get_page("mem-1")
    writer.add_segment(Segment(id="new"))
    writer.create_detail_page("in a new segment", "", "text", "new-0")
    writer.move_page("new-1", "mem-0")
    readings: list[Callable[[], object]] = [
        lambda: list(reader.history()),
        lambda: list(reader.list_pages()),
        lambda: list(reader.walk("mem-0")),
        lambda: reader.children("mem-0"),
        lambda: reader.ancestors("mem-2"),
        lambda: reader.get_page("mem-3"),
        lambda: reader.find("text"),
        lambda: reader.marshal(),
        lambda: reader.list_segments(),
        lambda: reader.check(),
    ]
    for number, reading in enumerate(readings):
        try:
            reading()
        except (NoSuchPage, Conflict):  # correct: it was removed, or another writer was first
            continue
        except QuireError as error:
            pytest.fail(f"reading {number}: {error!r}")
    reader.refresh()
    assert reader.marshal() == writer.marshal()
    assert reader.check() == []
    for storage in storages:
        storage.close()


def test_a_handle_never_writes_into_a_context_that_replaced_its_own(opener: Opener) -> None:
    storages = opener(), opener()
    stale, other = book(storages[0]).pages, quire.Library(storages[1])
    stale.create_detail_page("old one", "", "text of old one", "mem-0")
    stale.create_detail_page("old two", "", "text of old two", "mem-0")
    other.delete("book")
    fresh = other.open("book", counter=EstimateCounter()).pages
    fresh.create_detail_page("new one", "", "text of new one", "mem-0")
    fresh.create_detail_page("new two", "", "text of new two", "mem-0")
    assert fresh.seq == stale.seq  # the same version of another context
    try:
        stale.update_page("mem-1", description="meant for the old one")
    except Conflict:
        stale.refresh()
        assert stale.get_page("mem-1").name == "new one"
    fresh.refresh()
    whole(fresh, ["new one", "new two"])
    for storage in storages:
        storage.close()


def test_a_handle_learns_that_its_context_was_deleted(opener: Opener) -> None:
    storages = opener(), opener()
    system = book(storages[0]).pages
    system.create_detail_page("one", "", "text of one", "mem-0")
    quire.Library(storages[1]).delete("book")
    fresh: list[Callable[[], object]] = [
        lambda: system.hide("mem-1"),
        lambda: system.fork("f"),
        system.marshal,
        system.check,
    ]
    if not isinstance(storages[0], quire.FileStorage):  # its handles keep the log that they know until they refresh
        fresh += [lambda: list(system.history()), lambda: system.get_page("mem-99")]
    for act in fresh:
        with pytest.raises(NoSuchContext):
            act()
    for act in (system.refresh, lambda: system.checkpoint("x"), lambda: system.add_segment(Segment(id="new"))):
        with pytest.raises(NoSuchContext):
            act()
        assert not quire.Library(storages[1]).exists("book")  # a deleted context does not come back empty
    anew = book(storages[1]).pages
    assert system.refresh() is True
    anew.create_detail_page("anew", "", "text of anew", "mem-0")
    system.refresh()
    whole(system, ["anew"])
    for storage in storages:
        storage.close()


# Processes


def write_from(url: str, contexts: Iterable[str], count: int) -> None:
    """Run one process per context, all at once, each adding its pages; all must succeed."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), url, context, f"w{number}", str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, context in enumerate(contexts)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors


@pytest.mark.parametrize("kind", ["sqlite", *long("file")])
def test_processes_on_different_contexts_lose_nothing(kind: str, tmp_path: Path) -> None:
    url = f"{kind}:{tmp_path}/store"
    write_from(url, [f"book {number}" for number in range(2)], 40)
    with quire.Library(url) as library:
        assert list(library.list()) == [f"book {number}" for number in range(2)]
        for writer in range(2):
            pages = library.open(f"book {writer}", counter=EstimateCounter()).pages
            whole(pages, [f"w{writer}-{number}" for number in range(40)])
