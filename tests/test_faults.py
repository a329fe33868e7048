"""Every operation with a fault at each of its storage calls: it happens completely or not at all.

An operation that raised leaves the state before it, one that returned leaves the state after it: a lost acknowledgement
is resolved. This holds in memory and in the store, `check()` finds nothing, and the operation can be repeated.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest

import quire
from quire import (
    ContentsPage,
    Context,
    ContextSystem,
    DetailPage,
    EstimateCounter,
    InvalidOperation,
    MemoryStorage,
    OutcomeUnknown,
    Permission,
    QuireError,
    Segment,
    SegmentType,
    Storage,
    StorageFailure,
    ToolCall,
    migrate,
)
from quire.testing import FaultyStorage, InjectedFault
from tests.marks import long
from tests.stores import make

CONTEXT = "book"
THEN, NOW = 1_700_000_000_000, 1_700_000_360_000
When = Literal["before", "after"]
Operation = Callable[[Context], object]
USER = {"role": "user", "content": "new"}
CALL = {"id": "new", "type": "function", "function": {"name": "look", "arguments": "{}"}}
HISTORY: list[dict[str, Any]] = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "new", "content": "found"},
    {"role": "tool", "tool_call_id": "lost", "content": "orphan"},
]


def opened(storage: Storage, time: int = NOW) -> Context:
    return Context(ContextSystem(storage, CONTEXT, clock=lambda: time, counter=EstimateCounter()))


@cache
def library() -> MemoryStorage:
    """Return a context with pages and messages in every state; the comments are indices."""
    storage = MemoryStorage()
    talk = opened(storage, THEN)
    pages = talk.pages
    pages.add_segment(Segment(id="sys", type=SegmentType.SYSTEM, permission=Permission.READ_ONLY))
    pages.add_segment(Segment(id="mem"))
    pages.add_segment(Segment(id="usr", type=SegmentType.USER))
    pages.add_segment(Segment(id="tmp"))
    talk.system("You are careful.")  # message 0
    for number in range(1, 4):
        pages.create_detail_page(f"leaf {number}", f"about {number}", f"text {number}", "mem-0")
    pages.create_contents_page("folder", "", "mem-0", ["mem-2", "mem-3"])  # mem-4
    pages.create_contents_page("inner", "", "mem-4")  # mem-5
    pages.create_detail_page("deep", "", "deep text", "mem-5")  # mem-6
    pages.create_detail_page("hidden", "", "hidden text", "mem-0")  # mem-7
    pages.hide("mem-7")
    pages.create_detail_page("hot", "", "hot text", "mem-0")  # mem-8
    pages.archive("mem-8")
    pages.create_contents_page("cold", "", "mem-0")  # mem-9
    pages.create_detail_page("cold leaf", "", "cold text", "mem-9")  # mem-10
    pages.archive("mem-9", cold=True)
    pages.create_detail_page("pinned", "", "pinned text", "mem-0", pinned=True)  # mem-11
    pages.create_detail_page("moved", "", "moved text", "mem-0")  # mem-12
    pages.move_page("mem-12", "tmp-0")
    talk.checkpoint("here")
    talk.user("one")  # 1, usr-1
    talk.assistant(None, [ToolCall("a", "look"), ToolCall("b", "look")])  # 2, usr-2
    talk.tool_result("a", "1")  # 3
    talk.tool_result("b", "2")  # 4
    talk.user("two")  # 5, usr-3
    talk.assistant("three")  # 6, usr-4
    talk.conversation.delete(6)
    talk.user("four")  # 7, usr-5
    talk.user("five")  # 8, usr-6
    talk.conversation.compress([7, 8])  # usr-7
    talk.assistant(None, [ToolCall("late", "look")])  # 9, usr-8
    talk.conversation.batch_start()
    talk.user("in the batch")  # 10, usr-9
    talk.conversation.delete(1)
    talk.assistant(None, [ToolCall("open", "look")])  # 11, usr-10
    assert talk.check() == []
    return storage


@cache
def document() -> bytes:
    """Return another context as JSON."""
    system = ContextSystem(counter=EstimateCounter(), clock=lambda: THEN)
    system.add_segment(Segment(id="mem"))
    system.create_detail_page("from a document", "", "its text", "mem-0")
    return system.marshal()


def try_out(talk: Context) -> None:
    with talk.temporary():
        talk.user("not for long")
        talk.conversation.delete(5)
        talk.system("For a moment.")


CHANGES: dict[str, Operation] = {
    "add_segment": lambda t: t.pages.add_segment(Segment(id="new", name="New")),
    "remove_segment": lambda t: t.pages.remove_segment("tmp"),
    "update_segment": lambda t: t.pages.update_segment("mem", name="Memory", max_capacity=9),
    "set_segment_permission": lambda t: t.pages.set_segment_permission("mem", Permission.PRIVATE),
    "create_detail_page": lambda t: t.pages.create_detail_page("new", "summary", "new text", "mem-5", pinned=True),
    "create_contents_page": lambda t: t.pages.create_contents_page("new", "", "mem-0", ["mem-1", "mem-7"]),
    "add_page": lambda t: t.pages.add_page(DetailPage(index="mem-40", name="given", parent="mem-4"), "given text"),
    "add_page folder": lambda t: t.pages.add_page(ContentsPage(name="given", parent="mem-4")),
    "update_page": lambda t: t.pages.update_page("mem-6", name="renamed", description="", meta={"k": 1}),
    "set_detail": lambda t: t.pages.set_detail("mem-6", "another text"),
    "move_page": lambda t: t.pages.move_page("mem-7", "mem-4", before="mem-3"),
    "move_page to another segment": lambda t: t.pages.move_page("mem-4", "tmp-0"),
    "remove_page": lambda t: t.pages.remove_page("mem-4"),
    "expand": lambda t: t.pages.expand("mem-7"),
    "hide": lambda t: t.pages.hide("mem-4"),
    "archive": lambda t: t.pages.archive("mem-4"),
    "archive cold": lambda t: t.pages.archive("mem-4", cold=True),
    "restore": lambda t: t.pages.restore("mem-8"),
    "recall": lambda t: t.pages.recall("mem-10"),
    "pin": lambda t: t.pages.pin("mem-6"),
    "unpin": lambda t: t.pages.unpin("mem-11"),
    "undo": lambda t: t.undo(next(entry for entry in t.history() if entry.operation == "move_page")),
    "checkpoint": lambda t: t.checkpoint("there"),
    "rollback": lambda t: t.rollback("here"),
    "unmarshal": lambda t: t.pages.unmarshal(document()),
    "system": lambda t: t.system("You are brave."),
    "user": lambda t: t.user([{"type": "text", "text": "new"}]),
    "assistant": lambda t: t.assistant("new", [ToolCall("x", "look")]),
    "tool_result": lambda t: t.tool_result("open", "now"),
    "tool_result late": lambda t: t.tool_result("late", "at last"),
    "add": lambda t: t.add([USER, {"role": "assistant", "content": "both"}]),
    "import_messages": lambda t: t.import_messages(HISTORY),
    "close_calls": lambda t: t.close_calls(),
    "insert": lambda t: t.conversation.insert([USER, USER], at=5),
    "delete": lambda t: t.conversation.delete([3, 5]),
    "delete behind a summary": lambda t: t.conversation.delete(7),
    "replace": lambda t: t.conversation.replace([2, 5], USER),
    "compress": lambda t: t.conversation.compress([2, 5], "in short"),
    "modify": lambda t: t.conversation.modify(
        [{"operation": "delete", "indices": [5]}, {"operation": "insert", "data": USER}, {"operation": "batch_start"}]
    ),
    "batch_start": lambda t: t.conversation.batch_start(),
    "batch_end": lambda t: t.conversation.batch_end(0),
    "batch_commit": lambda t: t.conversation.batch_commit(),
    "fork": lambda t: t.pages.fork("branch"),
    "fork at": lambda t: t.pages.fork("branch", "here"),
    "temporary": try_out,
}
SEVERAL_COMMITS = {"temporary"}
WRITES = {"commit", "create", "name", "fork", "drop"}
"""The calls of a storage that write."""
READINGS: dict[str, Operation] = {
    "segments": lambda t: (t.pages.list_segments(), t.pages.get_segment("mem"), t.pages.segment_of("mem-6")),
    "nothing to change": lambda t: t.pages.expand("mem-1"),
    "a refusal": lambda t: refused(lambda: t.pages.hide("mem-9")),
    "an unknown call": lambda t: refused(lambda: t.tool_result("nobody", "1")),
    "load_page": lambda t: (t.pages.get_page("mem-6"), t.pages.load_page("mem-6"), t.pages.detail("mem-6")),
    "children": lambda t: (t.pages.children("mem-0", after="mem-1", limit=2), t.pages.child_count("mem-0")),
    "ancestors": lambda t: (t.pages.parent("mem-6"), t.pages.ancestors("mem-6")),
    "list_pages": lambda t: [*t.pages.list_pages(), *t.pages.list_pages("mem")],
    "find": lambda t: t.find("text"),
    "history": lambda t: (list(t.history()), t.pages.checkpoints()),
    "check": lambda t: t.check(),
    "evict_lru": lambda t: (t.pages.evict_lru(0), t.pages.get_page("mem-6"))[1],
    "refresh": lambda t: t.refresh(),
    "marshal": lambda t: t.pages.marshal(),
    "migrate": lambda t: t.pages.migrate(MemoryStorage()),
    "messages": lambda t: (list(t.messages()), list(t.messages(all=True)), t.messages()[3]),
    "marks": lambda t: (t.conversation.page_of(3), t.conversation.mark_of(7), t.conversation.mark_map()),
    "pending_calls": lambda t: t.pending_calls(),
    "the same again": lambda t: (t.system("You are careful."), t.tool_result("a", "1")),
}


def refused(call: Callable[[], object]) -> str:
    """Return the code of the error that a call raises; a fault of the storage passes."""
    try:
        call()
    except StorageFailure:
        raise
    except QuireError as error:
        return error.code
    raise AssertionError("the call was not refused")


def seen(talk: Context) -> tuple[object, ...]:
    """Return all visible data of the context, and of its fork if there is one."""
    storage = talk.pages.storage
    forks = [name for name in quire.Library(storage).list() if name != CONTEXT]
    branches = [ContextSystem(storage, name, counter=talk.pages.counter).marshal() for name in forks]
    details = [talk.pages.detail(page.index) for page in talk.pages.list_pages() if isinstance(page, DetailPage)]
    marks = [talk.conversation.mark_of(number) for number in range(len(talk.messages(all=True)))]
    said = list(talk.messages()), list(talk.messages(all=True)), talk.pending_calls(), talk.conversation.mark_map()
    return talk.pages.marshal(), list(talk.history()), details, marks, said, forks, branches


class Shelf:
    """Fresh copies of a context on one backend."""

    def __init__(self, backend: str, folder: Path, *, every: bool) -> None:
        self.backend = backend
        self._every = every
        self._folder = folder
        self._number = 0

    def copy(self) -> Storage:
        """Return the context in a storage of its own."""
        storage = self.empty()
        migrate(library(), storage)
        return storage

    def empty(self) -> Storage:
        """Return a storage without a context."""
        self._number += 1
        return make(self.backend, self._folder / str(self._number))

    def faults(self, calls: list[str]) -> Iterator[tuple[int, When]]:
        """Yield a fault before and after every call that writes, and before some of the others; with --long all."""
        for number, call in enumerate(calls, 1):
            writes = call in WRITES
            if self._every or writes or number % 5 == 1:
                yield number, "before"
            if self._every or writes:
                yield number, "after"


@pytest.fixture(params=["memory", *long("sqlite", "file")])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    return Shelf(request.param, tmp_path, every=bool(request.config.getoption("--long")))


def attempt(operation: Operation, talk: Context) -> bool:
    """Return whether the operation returned without an error of the storage."""
    try:
        operation(talk)
    except StorageFailure:
        return False
    return True


def undisturbed(shelf: Shelf, operation: Operation) -> tuple[list[str], object, object, object]:
    """Return the storage calls of an operation without faults, its result, and all visible data before and after it."""
    storage = shelf.copy()
    before = seen(opened(storage))
    counting = FaultyStorage(storage)
    talk = opened(counting)
    counting.arm(0)
    result = operation(talk)
    calls = list(counting.calls)
    return calls, result, before, seen(talk)


@pytest.mark.parametrize("name", CHANGES)
def test_a_fault_at_any_storage_call_leaves_the_state_before_or_after(name: str, shelf: Shelf) -> None:
    operation = CHANGES[name]
    calls, result, before, after = undisturbed(shelf, operation)
    assert after != before
    for number, when in shelf.faults(calls):
        where = f"{name}, call {number} ({calls[number - 1]}), {when}"
        storage = shelf.copy()
        faulty = FaultyStorage(storage)
        talk = opened(faulty)
        faulty.arm(number, when)
        done = attempt(operation, talk)
        assert faulty.failed, where
        faulty.heal()
        now = seen(opened(storage))
        assert now == (after if done else before) or name in SEVERAL_COMMITS, where
        assert seen(talk) == now, where
        assert talk.check() == [], where
        if not done and name not in SEVERAL_COMMITS:
            assert operation(talk) == result, where
            assert seen(opened(storage)) == after, where
        storage.close()


@pytest.mark.parametrize("name", READINGS)
def test_a_fault_while_reading_changes_nothing(name: str, shelf: Shelf) -> None:
    operation = READINGS[name]
    calls, result, before, after = undisturbed(shelf, operation)
    assert calls, "it does not read the storage: no fault is made"
    assert after == before
    storage = shelf.copy()
    for number, when in shelf.faults(calls):
        faulty = FaultyStorage(storage)
        talk = opened(faulty)
        faulty.arm(number, when)
        attempt(operation, talk)
        assert faulty.failed, (number, when)
        faulty.heal()
        assert operation(talk) == result, (number, when)
    assert seen(opened(storage)) == before
    storage.close()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        *((name, None) for name in CHANGES if name not in {"temporary", "fork", "fork at"}),
        ("set_detail", KeyboardInterrupt()),
        ("create_detail_page", ConnectionError("reset by peer")),
        ("create_detail_page", RuntimeError("a bug in a backend")),
    ],
)
def test_a_storage_that_stays_away_from_the_commit_on_leaves_the_state_before_or_after(
    name: str, error: BaseException | None, shelf: Shelf
) -> None:
    operation = CHANGES[name]
    calls, _, before, after = undisturbed(shelf, operation)
    outcomes: dict[When, object] = {"before": before, "after": after}
    raised = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else OutcomeUnknown
    for when, expected in outcomes.items():
        storage = shelf.copy()
        faulty = FaultyStorage(storage, error=error)
        talk = opened(faulty)
        faulty.arm(calls.index("commit") + 1, when, lasting=True)
        with pytest.raises(raised):
            operation(talk)
        with pytest.raises(type(error) if error else InjectedFault):  # it must read before it answers
            talk.pages.get_page("mem-4")
        faulty.heal()
        assert seen(talk) == seen(opened(storage)) == expected, when
        assert talk.check() == []
        storage.close()


def test_a_context_is_made_whole_or_not_at_all(shelf: Shelf) -> None:
    counting = FaultyStorage(shelf.empty())
    quire.open(counting, "new", counter=EstimateCounter())
    for number, when in shelf.faults(counting.calls):
        storage = shelf.empty()
        try:
            quire.open(FaultyStorage(storage, number, when), "new", counter=EstimateCounter())
            made = True
        except InjectedFault:
            made = False
        assert list(quire.Library(storage).list()) == (["new"] if made else []), (number, when)
        with quire.open(storage, "new", counter=EstimateCounter()) as context:
            assert [segment.id for segment in context.pages.list_segments()] == ["sys", "mem", "usr", "win"]
            assert (context.seq, context.check()) == (1, [])
        storage.close()


def test_a_move_to_another_storage_fails_on_neither_side(shelf: Shelf) -> None:
    source, counting = shelf.copy(), FaultyStorage(shelf.empty())
    before = seen(opened(source))
    opened(source).pages.set_storage(counting, migrate=True)
    for number, when in shelf.faults(counting.calls):
        target = shelf.empty()
        faulty = FaultyStorage(target, number, when)
        talk = opened(source)
        try:
            talk.pages.set_storage(faulty, migrate=True)
        except InjectedFault:
            assert talk.pages.storage is source, (number, when)
        faulty.heal()
        assert seen(talk) == before, (number, when)
        talk.pages.set_storage(target, migrate=True)
        assert seen(talk) == before, (number, when)
        target.close()


def test_a_deleted_context_is_gone_whole_or_there_whole(shelf: Shelf) -> None:
    counting = FaultyStorage(shelf.copy())
    quire.Library(counting).delete(CONTEXT)
    for number, when in shelf.faults(counting.calls):
        storage = shelf.copy()
        before = seen(opened(storage))
        with pytest.raises((InjectedFault, InvalidOperation)):
            quire.Library(FaultyStorage(storage, number, when)).delete(CONTEXT)
        assert not list(quire.Library(storage).list()) or seen(opened(storage)) == before
        storage.close()
