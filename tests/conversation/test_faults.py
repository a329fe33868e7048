"""Every conversation operation with a fault at each of its storage calls: it happens completely or not at all.

The technique is that of `tests/test_faults.py`: an operation that raised leaves the state before it, one that returned
leaves the state after it, both in memory and in the store.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quire import Context, ContextSystem, MemoryStorage, Segment, SegmentType, Storage, StorageFailure
from quire.model.pages import Mark
from quire.testing import FaultyStorage
from tests.talks import calling, stored, texts
from tests.test_faults import CONTEXT, THEN, Shelf, faults, system_on, tried

Operation = Callable[[Context], object]


def talk_on(storage: Storage) -> Context:
    return Context(system_on(storage))


@cache
def library() -> MemoryStorage:
    """Return a conversation with every kind of page; the comments are the message indices."""
    storage = MemoryStorage()
    talk = Context(system_on(storage, lambda: THEN))
    for id, type in (("sys", SegmentType.SYSTEM), ("mem", SegmentType.CUSTOM), ("usr", SegmentType.USER)):  # noqa: A001
        talk.pages.add_segment(Segment(id=id, type=type))
    talk.system("You are careful.")  # 0
    talk.user("one")  # 1, usr-1
    talk.assistant(None, calling("a", "b"))  # 2, usr-2
    talk.tool_result("a", "1")  # 3
    talk.tool_result("b", "2")  # 4
    talk.user("two")  # 5, usr-3
    talk.assistant("three")  # 6, usr-4
    talk.checkpoint("here")
    talk.conversation.delete(6)
    talk.user("four")  # 7, usr-5
    talk.user("five")  # 8, usr-6
    talk.conversation.compress([7, 8])  # usr-7
    talk.assistant(None, calling("late"))  # 9, usr-8
    talk.conversation.batch_start()
    talk.user("in the batch")  # 10, usr-9
    talk.conversation.delete(1)
    talk.assistant(None, calling("open"))  # 11, usr-10
    assert talk.check() == []
    return storage


USER = {"role": "user", "content": "new"}
CALLS = [{"id": "new", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
HISTORY = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "new", "content": "found"},
    {"role": "tool", "tool_call_id": "lost", "content": "orphan"},
]
OPERATIONS: dict[str, Operation] = {
    "system": lambda t: t.system("You are brave."),
    "system by name": lambda t: t.system("Be brief.", "rules"),
    "user": lambda t: t.user("new"),
    "user parts": lambda t: t.user([{"type": "text", "text": "new"}]),
    "assistant": lambda t: t.assistant("new", calling("x", "a")),
    "tool_result": lambda t: t.tool_result("open", "now"),
    "tool_result late": lambda t: t.tool_result("late", "at last"),
    "add": lambda t: t.add([USER, {"role": "assistant", "content": "both"}]),
    "import_messages": lambda t: t.import_messages(HISTORY),
    "close_calls": lambda t: t.close_calls(),
    "insert": lambda t: t.conversation.insert(USER),
    "insert at": lambda t: t.conversation.insert([USER, USER], at=5),
    "delete": lambda t: t.conversation.delete([3, 5]),
    "delete behind a summary": lambda t: t.conversation.delete(7),
    "replace": lambda t: t.conversation.replace([2, 5], USER),
    "replace a result": lambda t: t.conversation.replace(3, {"role": "tool", "tool_call_id": "a", "content": "!"}),
    "compress": lambda t: t.conversation.compress([2, 5], "in short"),
    "modify": lambda t: t.conversation.modify(
        [
            {"operation": "delete", "indices": [5]},
            {"operation": "insert", "data": USER},
            {"operation": "batch_start"},
            {"operation": "compress", "indices": [12]},
            {"operation": "batch_end", "indices": [1]},
        ]
    ),
    "batch_start": lambda t: t.conversation.batch_start(),
    "batch_end": lambda t: t.conversation.batch_end(0),
    "batch_commit": lambda t: t.conversation.batch_commit(),
    "rollback": lambda t: t.rollback("here"),
    "rollback to the beginning": lambda t: t.rollback(5),
    "undo a batch": lambda t: t.undo(next(e for e in t.history() if e.operation == "batch_start").seq + 2),
    "fork": lambda t: t.pages.fork("branch"),
    "fork at": lambda t: t.pages.fork("branch", "here"),
}


def seen(talk: Context) -> tuple[object, ...]:
    """Return all visible data of the context, and of its fork if there is one."""
    storage = talk.pages.storage
    others = [name for name in storage.contexts() if name != CONTEXT]
    return stored(talk), {
        name: stored(Context(ContextSystem(storage, name, counter=talk.pages.counter))) for name in others
    }


@pytest.fixture(scope="module", params=["memory", pytest.param("file", marks=pytest.mark.slow), "sqlite"])
def shelf(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    long = bool(request.config.getoption("--long"))
    return Shelf(request.param, tmp_path_factory.mktemp(request.param), library, long=long)


def undisturbed(shelf: Shelf, operation: Operation) -> tuple[list[str], object, object, object]:
    """Return the storage calls of an operation without faults, its result, and all visible data before and after it."""
    counting = FaultyStorage(shelf.copy())
    talk = talk_on(counting)
    before = seen(talk)
    talk = talk_on(counting)
    counting.arm(0)
    result = operation(talk)
    calls = list(counting.calls)
    after = seen(talk)
    shelf.discard(counting)
    return calls, result, before, after


def attempt(operation: Operation, talk: Context) -> bool:
    try:
        operation(talk)
    except StorageFailure:
        return False
    return True


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fault_at_any_storage_call_leaves_the_state_before_or_after(name: str, shelf: Shelf) -> None:
    operation = OPERATIONS[name]
    calls, result, before, after = undisturbed(shelf, operation)
    assert after != before
    for number, when in tried(shelf, calls):
        where = f"{name}, call {number} ({calls[number - 1]}), {when}"
        storage = shelf.copy()
        faulty = FaultyStorage(storage)
        talk = talk_on(faulty)
        faulty.arm(number, when)
        done = attempt(operation, talk)
        assert faulty.failed, where
        faulty.heal()
        now = seen(talk)
        assert now == (after if done else before), where
        assert now == seen(talk_on(storage)), where
        assert talk.check() == [], where
        if not done:
            assert operation(talk) == result, where
            assert talk.check() == [], where
        storage = shelf.reopened(storage)
        assert seen(talk_on(storage)) == after, where
        shelf.discard(storage)


def cleaned(talk: Context) -> object:
    return talk.conversation.cleanup()


def test_a_cleanup_that_fails_destroys_nothing(shelf: Shelf) -> None:
    def prepared() -> Storage:
        storage = shelf.copy()
        talk_on(storage).conversation.batch_end(0)
        return storage

    counting = FaultyStorage(prepared())
    talk = talk_on(counting)
    before = seen(talk)
    talk = talk_on(counting)
    counting.arm(0)
    result = cleaned(talk)
    calls, after = list(counting.calls), seen(talk)
    shelf.discard(counting)
    for number, when in tried(shelf, calls):
        storage = prepared()
        faulty = FaultyStorage(storage)
        talk = talk_on(faulty)
        faulty.arm(number, when)
        done = attempt(cleaned, talk)
        faulty.heal()
        assert seen(talk) == (after if done else before) == seen(talk_on(storage)), (number, when)
        assert talk.check() == [], (number, when)
        if not done:
            assert cleaned(talk) == result
        assert seen(talk_on(storage)) == after, (number, when)
        shelf.discard(storage)


def try_out(talk: Context) -> None:
    with talk.temporary():
        talk.user("not for long")
        talk.conversation.delete(5)
        talk.system("For a moment.")
        talk.assistant("gone soon")


def test_a_temporary_block_that_fails_anywhere_leaves_nothing_in_the_conversation(shelf: Shelf) -> None:
    calls, _, _, after = undisturbed(shelf, try_out)
    expected = texts(talk_on(library()))
    for number, when in tried(shelf, calls):
        where = (number, when)
        storage = shelf.copy()
        faulty = FaultyStorage(storage)
        talk = talk_on(faulty)
        faulty.arm(number, when)
        done = attempt(try_out, talk)
        faulty.heal()
        now = seen(talk)
        assert now == seen(talk_on(storage)), where
        assert texts(talk) == expected, where
        assert talk.conversation.mark_map().batch_boundaries == [0, 10], where
        assert talk.conversation.mark_of(5) is Mark.NONE, where
        assert talk.check() == [], where
        if done:
            assert now == after, where
        try_out(talk)
        assert texts(talk) == expected, where
        assert talk.check() == [], where
        shelf.discard(storage)


READINGS: dict[str, Operation] = {
    "messages": lambda t: list(t.messages()),
    "all messages": lambda t: list(t.messages(all=True)),
    "one of them": lambda t: t.messages()[3],
    "message": lambda t: t.conversation.message(3),
    "page_of": lambda t: t.conversation.page_of(3),
    "mark_of": lambda t: t.conversation.mark_of(7),
    "is_modified": lambda t: t.conversation.is_modified(7),
    "mark_map": lambda t: t.conversation.mark_map(),
    "pending_calls": lambda t: t.pending_calls(),
    "find": lambda t: t.find("two"),
    "checkpoints": lambda t: t.pages.checkpoints(),
    "the same prompt": lambda t: t.system("You are careful."),
    "the same result": lambda t: t.tool_result("a", "1"),
    "a refusal": lambda t: _refused(t),
}


def _refused(talk: Context) -> None:
    with pytest.raises(Exception, match=r"'nobody'|injected"):
        talk.tool_result("nobody", "1")


@pytest.mark.parametrize("name", READINGS)
def test_a_fault_while_reading_changes_nothing(name: str, tmp_path: Path) -> None:
    shelf = Shelf("memory", tmp_path, library)
    operation = READINGS[name]
    storage = shelf.copy()
    counting = FaultyStorage(storage)
    talk = talk_on(counting)
    counting.arm(0)
    result: Any = operation(talk)
    before = seen(talk_on(storage))
    for number, when in faults(len(counting.calls)):
        faulty = FaultyStorage(storage)
        talk = talk_on(faulty)
        faulty.arm(number, when)
        attempt(operation, talk)
        faulty.heal()
        assert operation(talk) == result, (number, when)
    assert seen(talk_on(storage)) == before
    shelf.discard(storage)
