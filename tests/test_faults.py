"""Every operation with a fault at each of its storage calls: the state is the one before or the one after.

This holds in memory and on disk, and the two agree. `check()` finds nothing, and the operation can be repeated. An
operation that raised leaves the state before it, one that returned leaves the state after it: a lost acknowledgement is
resolved.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import quire
from quire import (
    Conflict,
    ContentsPage,
    ContextSystem,
    DetailPage,
    Entry,
    EstimateCounter,
    FileStorage,
    InvalidOperation,
    MemoryStorage,
    NoSuchPage,
    OutcomeUnknown,
    Page,
    Permission,
    Segment,
    SQLiteStorage,
    Storage,
    StorageFailure,
    migrate,
)
from quire.core.plan import Plan
from quire.storage.base import Commit, Put
from quire.system import PageStorage, lifecycle, tree
from quire.testing import FaultyStorage, InjectedFault
from quire.testing.case import When, contents

CONTEXT = "book"
THEN, NOW = 1_700_000_000_000, 1_700_000_360_000
Operation = Callable[[ContextSystem], object]
WHEN: tuple[When, ...] = ("before", "after")


def system_on(storage: Storage, clock: Callable[[], int] = lambda: NOW) -> ContextSystem:
    return ContextSystem(storage, CONTEXT, clock=clock, counter=EstimateCounter())


@cache
def library() -> MemoryStorage:
    """Return a small context with folders, hidden, hot, cold, pinned and moved pages, and an undone entry."""
    storage = MemoryStorage()
    system = system_on(storage, lambda: THEN)
    for segment in (
        Segment(id="sys", type=quire.SegmentType.SYSTEM, permission=Permission.READ_ONLY),
        Segment(id="mem"),
        Segment(id="usr", type=quire.SegmentType.USER),
        Segment(id="tmp"),
    ):
        system.add_segment(segment)
    system.create_detail_page("prompt", "", "You are careful.", "sys-0")
    for number in range(1, 4):
        system.create_detail_page(f"leaf {number}", f"about {number}", f"text {number}", "mem-0")
    system.create_contents_page("folder", "", "mem-0", ["mem-2", "mem-3"])  # mem-4
    system.create_contents_page("inner", "", "mem-4")  # mem-5
    system.create_detail_page("deep", "", "deep text", "mem-5")  # mem-6
    system.create_detail_page("hidden", "", "hidden text", "mem-0")  # mem-7
    system.hide("mem-7")
    system.create_detail_page("hot", "", "hot text", "mem-0")  # mem-8
    system.archive("mem-8")
    system.create_contents_page("cold", "", "mem-0")  # mem-9
    system.create_detail_page("cold leaf", "", "cold text", "mem-9")  # mem-10
    system.archive("mem-9", cold=True)
    system.create_detail_page("pinned", "", "pinned text", "mem-0", pinned=True)  # mem-11
    system.create_detail_page("moved", "", "moved text", "mem-0")  # mem-12 → usr-1
    system.move_page("mem-12", "usr-0")
    system.create_detail_page("scratch", "", "scratch text", "tmp-0")
    system.update_page("mem-1", description="a change that is undone")
    system.undo(system.seq)
    assert system.check() == []
    return storage


@cache
def document() -> bytes:
    """Return another context as JSON."""
    system = ContextSystem(counter=EstimateCounter(), clock=lambda: THEN)
    system.add_segment(Segment(id="mem"))
    system.create_detail_page("from a document", "", "its text", "mem-0")
    return system.marshal()


CHANGES: dict[str, Operation] = {
    "add_segment": lambda s: s.add_segment(Segment(id="new", name="New")),
    "remove_segment": lambda s: s.remove_segment("tmp"),
    "update_segment": lambda s: s.update_segment("mem", name="Memory", max_capacity=9),
    "set_segment_permission": lambda s: s.set_segment_permission("mem", Permission.PRIVATE),
    "create_detail_page": lambda s: s.create_detail_page("new", "summary", "new text", "mem-5"),
    "create_detail_page pinned": lambda s: s.create_detail_page("new", "", "new text", "mem-5", pinned=True),
    "create_contents_page": lambda s: s.create_contents_page("new", "", "mem-4"),
    "create_contents_page gathering": lambda s: s.create_contents_page("new", "", "mem-0", ["mem-1", "mem-3", "mem-7"]),
    "add_page": lambda s: s.add_page(DetailPage(index="mem-40", name="given", parent="mem-4"), "given text"),
    "add_page folder": lambda s: s.add_page(ContentsPage(name="given", parent="mem-4")),
    "update_page": lambda s: s.update_page("mem-6", name="renamed", description="", meta={"k": 1}),
    "set_detail": lambda s: s.set_detail("mem-6", "another text"),
    "move_page": lambda s: s.move_page("mem-1", "mem-5"),
    "move_page before": lambda s: s.move_page("mem-7", "mem-4", before="mem-3"),
    "move_page to another segment": lambda s: s.move_page("mem-4", "usr-0"),
    "remove_page": lambda s: s.remove_page("mem-1"),
    "remove_page subtree": lambda s: s.remove_page("mem-4"),
    "expand": lambda s: s.expand("mem-7"),
    "hide": lambda s: s.hide("mem-4"),
    "archive": lambda s: s.archive("mem-4"),
    "archive cold": lambda s: s.archive("mem-4", cold=True),
    "restore": lambda s: s.restore("mem-8"),
    "recall": lambda s: s.recall("mem-10"),
    "pin": lambda s: s.pin("mem-6"),
    "unpin": lambda s: s.unpin("mem-11"),
    "undo": lambda s: s.undo(s.seq),
    "undo a move": lambda s: s.undo(next(e for e in s.history() if e.operation == "move_page")),
    "checkpoint": lambda s: s.checkpoint("here"),
    "rollback": lambda s: s.rollback(12),
    "unmarshal": lambda s: s.unmarshal(document()),
    "save a page": lambda s: PageStorage(s).save(DetailPage(index="mem-1", name="saved", parent="mem-4"), "saved text"),
    "delete a page": lambda s: PageStorage(s).delete("mem-1"),
    "several steps in one": lambda s: s._engine.run(s.actor, "both", several),
    "set_storage": lambda s: s.set_storage(MemoryStorage(), migrate=True),
}
READINGS: dict[str, Operation] = {
    "get_segment": lambda s: s.get_segment("mem"),
    "list_segments": lambda s: s.list_segments(),
    "segment_of": lambda s: s.segment_of("mem-6"),
    "generate_index": lambda s: s.generate_index("mem"),
    "nothing to change": lambda s: s.expand("mem-1"),
    "a refusal": lambda s: refused(s, "mem-9", InvalidOperation),
    "no such page": lambda s: refused(s, "mem-12", NoSuchPage),
    "get_page": lambda s: s.get_page("mem-6"),
    "load_page": lambda s: s.load_page("mem-6"),
    "detail": lambda s: s.detail("mem-6"),
    "children": lambda s: s.children("mem-0", after="mem-1", limit=2),
    "has_child": lambda s: s.has_child("mem-4", "mem-2"),
    "child_count": lambda s: s.child_count("mem-0"),
    "parent": lambda s: s.parent("mem-6"),
    "ancestors": lambda s: s.ancestors("mem-6"),
    "list_pages": lambda s: list(s.list_pages()),
    "list_pages of a segment": lambda s: list(s.list_pages("mem")),
    "walk": lambda s: list(s.walk("mem-0")),
    "find": lambda s: s.find("text"),
    "history": lambda s: list(s.history()),
    "checkpoints": lambda s: s.checkpoints(),
    "seq": lambda s: s.seq,
    "check": lambda s: s.check(),
    "evict_page": lambda s: s.evict_page("mem-6"),
    "evict_lru": lambda s: s.evict_lru(0),
    "refresh": lambda s: s.refresh(),
    "marshal": lambda s: s.marshal(),
    "migrate": lambda s: s.migrate(MemoryStorage()),
    "names": lambda s: s.names(["mem-6", "mem-99"]),
    "as_of": lambda s: list(s.as_of(3).list_pages()),
}


def refused(system: ContextSystem, index: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        system.hide(index)


def several(plan: Plan) -> None:
    folder = tree.create_contents_page(plan, "first", "", "mem-0")
    tree.create_detail_page(plan, "second", "", "text", folder)
    lifecycle.hide(plan, folder)


class Snapshot(NamedTuple):
    """Return all visible data of a context, past the cache and through it."""

    document: bytes
    history: list[Entry]
    pages: list[Page]
    details: list[str]


def snapshot(system: ContextSystem) -> Snapshot:
    indices = [page.index for page in system.list_pages()]
    pages = [system.get_page(index) for index in indices]
    details = [system.detail(page.index) for page in pages if isinstance(page, DetailPage)]
    return Snapshot(system.marshal(), list(system.history()), pages, details)


class Shelf:
    """Fresh copies of a context on one backend."""

    def __init__(
        self, backend: str, folder: Path, source: Callable[[], Storage] = library, *, long: bool = False
    ) -> None:
        self.backend = backend
        self.thorough = long or backend == "memory"
        self._source = source
        self._folder = folder
        self._number = 0
        self._book = folder / "book"
        storage = self._open(self._book)
        migrate(self._source(), storage)
        self.before = snapshot(system_on(storage))
        head, records = contents(storage, CONTEXT)
        assert head is not None
        puts = [Put(family, r.key, r.value, r.group, r.order) for family, found in records.items() for r in found]
        self._whole = Commit(0, head.version, head.value, puts)
        storage.close()

    def copy(self) -> Storage:
        """Return the context in a separate storage."""
        self._number += 1
        place = self._folder / str(self._number)
        match self.backend:
            case "file":
                apart = shutil.ignore_patterns("log", "lock")  # the readable files are replaced, never changed in place
                shutil.copytree(self._book / CONTEXT, place / CONTEXT, ignore=apart, copy_function=os.link)
                shutil.copy(self._book / CONTEXT / "log", place / CONTEXT / "log")
            case "sqlite":
                shutil.copy(self._book, place)
        storage = self._open(place)
        if self.backend == "memory":
            storage.commit(CONTEXT, self._whole)
        return storage

    def empty(self) -> Storage:
        """Return a storage without the context."""
        self._number += 1
        return self._open(self._folder / str(self._number))

    def reopened(self, storage: Storage) -> Storage:
        """Return the same store, closed and opened again."""
        storage.close()
        return self._open(storage.path) if isinstance(storage, FileStorage | SQLiteStorage) else storage

    def discard(self, storage: Storage) -> None:
        """Close a copy and remove it: there are thousands."""
        inner = storage.inner if isinstance(storage, FaultyStorage) else storage
        inner.close()
        if isinstance(inner, FileStorage):
            shutil.rmtree(inner.path)
        elif isinstance(inner, SQLiteStorage):
            inner.path.unlink()

    def _open(self, place: Path) -> Storage:
        match self.backend:
            case "file":
                return FileStorage(place)
            case "sqlite":
                return SQLiteStorage(place)
            case _:
                return MemoryStorage()


@pytest.fixture(scope="module", params=["memory", pytest.param("file", marks=pytest.mark.slow), "sqlite"])
def shelf(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    long = bool(request.config.getoption("--long"))
    return Shelf(request.param, tmp_path_factory.mktemp(request.param), long=long)


class Course(NamedTuple):
    """Return the storage calls of an operation without faults, its result, and the state after it."""

    calls: list[str]
    result: object
    after: Snapshot


def undisturbed(shelf: Shelf, operation: Operation) -> Course:
    counting = FaultyStorage(shelf.copy())
    system = system_on(counting)
    counting.arm(0)
    result = operation(system)
    calls = list(counting.calls)
    course = Course(calls, result, snapshot(system))
    shelf.discard(counting)
    return course


def attempt(operation: Operation, system: ContextSystem) -> bool:
    """Return whether the operation returned without an error of the storage."""
    try:
        operation(system)
    except StorageFailure:
        return False
    return True


def faults(calls: int) -> Iterator[tuple[int, When]]:
    """Yield a fault before and after every call."""
    for number in range(1, calls + 1):
        for when in WHEN:
            yield number, when


def tried(shelf: Shelf, calls: list[str]) -> Iterator[tuple[int, When]]:
    """Yield every fault in memory, where copies cost nothing. On disk, yield only faults of writes, because a failing
    read has the same effect on every backend. With --long, yield all of them.
    """
    for number, when in faults(len(calls)):
        if shelf.thorough or calls[number - 1] in ("commit", "fork"):
            yield number, when


@pytest.mark.parametrize("name", CHANGES)
def test_a_fault_at_any_storage_call_leaves_the_state_before_or_after(name: str, shelf: Shelf) -> None:
    operation = CHANGES[name]
    course = undisturbed(shelf, operation)
    assert course.after != shelf.before or name == "set_storage"
    for number, when in tried(shelf, course.calls):
        where = f"{name}, call {number}, {when}"
        storage = shelf.copy()
        faulty = FaultyStorage(storage)
        system = system_on(faulty)
        faulty.arm(number, when)
        done = attempt(operation, system)
        assert faulty.failed, where
        assert snapshot(system) == (course.after if done else shelf.before), where
        assert system.check() == [], where
        if not done:
            assert operation(system) == course.result, where
            assert system.check() == [], where
        storage = shelf.reopened(storage)
        assert snapshot(system_on(storage)) == course.after, where
        shelf.discard(storage)


@pytest.mark.parametrize("name", READINGS)
def test_a_fault_at_any_storage_call_of_a_reading_changes_nothing(name: str, shelf: Shelf) -> None:
    operation = READINGS[name]
    course = undisturbed(shelf, operation)
    storage = shelf.copy()
    every = 1 if shelf.thorough else max(1, len(course.calls) // 2)  # on disk the first, the middle and the last call
    for number, when in faults(len(course.calls)):
        if (number - 1) % every:
            continue
        where = f"{name}, call {number}, {when}"
        faulty = FaultyStorage(storage)
        system = system_on(faulty)
        faulty.arm(number, when)
        attempt(operation, system)
        assert faulty.failed, where
        assert operation(system) == course.result, where
        assert system.check() == [], where
    assert snapshot(system_on(storage)) == shelf.before
    shelf.discard(storage)


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "set_storage"])
def test_a_storage_that_stays_away_from_the_commit_on_leaves_the_state_before_or_after(name: str, shelf: Shelf) -> None:
    operation = CHANGES[name]
    course = undisturbed(shelf, operation)
    for when in WHEN:
        storage = shelf.copy()
        faulty = FaultyStorage(storage)
        system = system_on(faulty)
        faulty.arm(course.calls.index("commit") + 1, when, lasting=True)
        with pytest.raises(OutcomeUnknown):
            operation(system)
        faulty.heal()
        expected = shelf.before if when == "before" else course.after
        assert snapshot(system) == expected, (name, when)
        assert system.check() == [], (name, when)
        storage = shelf.reopened(storage)
        assert snapshot(system_on(storage)) == expected, (name, when)
        shelf.discard(storage)


def commit_call(shelf: Shelf, operation: Operation) -> int:
    """Return the position of the commit among the operation's calls."""
    return undisturbed(shelf, operation).calls.index("commit") + 1


def test_a_commit_that_cannot_be_asked_about_is_an_unknown_outcome(shelf: Shelf) -> None:
    for when in WHEN:
        faulty = FaultyStorage(shelf.copy())
        system = system_on(faulty)
        faulty.arm(commit_call(shelf, CHANGES["hide"]), when, lasting=True)
        with pytest.raises(OutcomeUnknown, match="'hide'"):
            system.hide("mem-4")
        with pytest.raises(InjectedFault):  # still unavailable: it must read before it answers
            system.get_page("mem-4")
        faulty.heal()
        hidden = system.get_page("mem-4").visibility is quire.Visibility.HIDDEN
        assert hidden is (when == "after")
        system.hide("mem-4")
        assert len([entry for entry in system.history() if entry.operation == "hide"]) == 2
        assert system.check() == []
        shelf.discard(faulty)


@pytest.mark.parametrize("error", [ConnectionError("reset by peer"), RuntimeError("a bug in a backend")])
def test_a_backend_may_raise_whatever_it_likes(error: Exception, shelf: Shelf) -> None:
    call = commit_call(shelf, CHANGES["create_detail_page"])
    for when in WHEN:
        faulty = FaultyStorage(shelf.copy(), error=error)
        system = system_on(faulty)
        faulty.arm(call, when)
        if when == "before":
            with pytest.raises(StorageFailure, match=str(error)):
                CHANGES["create_detail_page"](system)
            assert snapshot(system) == shelf.before
        assert CHANGES["create_detail_page"](system) == "mem-13"
        assert system.check() == []
        shelf.discard(faulty)


def test_an_interrupted_commit_is_looked_up_before_the_next_call(shelf: Shelf) -> None:
    call = commit_call(shelf, CHANGES["set_detail"])
    after = undisturbed(shelf, CHANGES["set_detail"]).after
    for when in WHEN:
        faulty = FaultyStorage(shelf.copy(), error=KeyboardInterrupt())
        system = system_on(faulty)
        faulty.arm(call, when)
        with pytest.raises(KeyboardInterrupt):
            CHANGES["set_detail"](system)
        assert snapshot(system) == (shelf.before if when == "before" else after)
        assert system.check() == []
        shelf.discard(faulty)


def test_a_refresh_that_fails_leaves_the_old_or_the_new_state(shelf: Shelf) -> None:
    for number, when in faults(20):
        storage = shelf.copy()
        faulty = FaultyStorage(storage)
        system = system_on(faulty)
        old = system.list_segments(), system.seq
        other = system_on(storage)
        other.add_segment(Segment(id="new"))
        other.create_detail_page("from another handle", "", "text", "mem-0")
        new = other.list_segments(), other.seq
        faulty.arm(number, when)
        attempt(lambda s: s.refresh(), system)
        calls = len(faulty.calls)
        faulty.heal()
        assert (system.list_segments(), system.seq) in (old, new), (number, when)
        try:
            system.create_detail_page("after it", "", "text", "new-0")
        except (Conflict, NoSuchPage):
            system.refresh()
            system.create_detail_page("after it", "", "text", "new-0")
        assert system.check() == [], (number, when)
        other.refresh()
        assert snapshot(other) == snapshot(system)
        shelf.discard(storage)
        if calls < number:
            return
    pytest.fail("refresh() makes more storage calls than this test tries")


def test_an_opening_that_fails_changes_nothing(shelf: Shelf) -> None:
    counting = FaultyStorage(shelf.copy())
    system_on(counting)
    for number, when in faults(len(counting.calls)):
        storage = shelf.copy()
        with pytest.raises(InjectedFault):
            system_on(FaultyStorage(storage, number, when))
        assert snapshot(system_on(storage)) == shelf.before
        shelf.discard(storage)
    shelf.discard(counting)


def test_a_context_is_made_whole_or_not_at_all(shelf: Shelf) -> None:
    counting = FaultyStorage(shelf.empty())
    quire.open(counting, "new", counter=EstimateCounter())
    for number, when in faults(len(counting.calls)):
        storage = shelf.empty()
        try:
            quire.open(FaultyStorage(storage, number, when), "new", counter=EstimateCounter())
            made = True
        except InjectedFault:
            made = False
        assert list(storage.contexts()) == (["new"] if made else []), (number, when)
        with quire.open(storage, "new", counter=EstimateCounter()) as context:
            assert [segment.id for segment in context.pages.list_segments()] == ["sys", "mem", "usr", "win"]
            assert (context.seq, context.check()) == (1, [])
        shelf.discard(storage)
    shelf.discard(counting)


def test_a_move_to_another_storage_fails_on_neither_side(shelf: Shelf) -> None:
    counting = FaultyStorage(shelf.empty())
    source = shelf.copy()
    system_on(source).set_storage(counting, migrate=True)
    calls = len(counting.calls)
    for number, when in faults(calls):
        target = shelf.empty()
        faulty = FaultyStorage(target, number, when)
        system = system_on(source)
        try:
            system.set_storage(faulty, migrate=True)
        except InjectedFault:
            assert system.storage is source, (number, when)
        faulty.heal()
        assert snapshot(system) == shelf.before, (number, when)
        system.set_storage(target, migrate=True)
        assert snapshot(system) == shelf.before, (number, when)
        assert system.check() == [], (number, when)
        shelf.discard(target)
    shelf.discard(source)
    shelf.discard(counting)


def test_a_deleted_context_is_gone_whole_or_there_whole(shelf: Shelf) -> None:
    for number, when in faults(2):
        storage = shelf.copy()
        with pytest.raises(InjectedFault):
            quire.Library(FaultyStorage(storage, number, when)).delete(CONTEXT)
        if (number, when) == (2, "after"):
            assert list(storage.contexts()) == []
        else:
            assert snapshot(system_on(storage)) == shelf.before
        shelf.discard(storage)


def test_the_table_of_operations_is_complete() -> None:
    tried = {name.split(" ", 1)[0] for name in CHANGES | READINGS}
    other = {"acting_as", "beside", "opened", "run", "save", "load", "audit", "fork"}
    other |= {"storage", "context", "cached_pages", "actor", "counter"}
    other |= {"purge", "scrub"}  # it has several steps: tests/system/test_purge.py lets each of them fail
    public = {name for name in dir(ContextSystem) if not name.startswith("_")}
    assert public - other - tried == set()
