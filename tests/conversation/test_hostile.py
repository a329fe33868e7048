"""Hostile input for conversations: a short, typed error, and no change in memory or in the store."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from quire import Context, Message, ToolCall
from tests.talks import full_talk, stored
from tests.test_hostile import CODE, HUGE, OPTIONAL, WRONG, Call, refusal

USER = {"role": "user", "content": "new"}
TIME = datetime(2024, 5, 1, tzinfo=UTC)
SAYABLE = {"nul", "huge"}
"""Content may be any text."""

CALLS: dict[str, Call] = {
    "acting_as": Call(actor="someone"),
    "system": Call(("text", SAYABLE), ("name", OPTIONAL), text="You are brave.", name="rules"),
    "user": Call(("content", SAYABLE), ("id", OPTIONAL), ("at", OPTIONAL), content="new", id="m1", at=TIME),
    "assistant": Call(
        ("content", SAYABLE | OPTIONAL),
        ("tool_calls", OPTIONAL),
        ("view", OPTIONAL),
        ("id", OPTIONAL),
        ("at", OPTIONAL),
        content="new",
        tool_calls=[ToolCall("x", "look")],
        view=None,
        id="m2",
        at=TIME,
    ),
    "tool_result": Call(
        ("content", SAYABLE | OPTIONAL | {"dict"}),
        ("id", OPTIONAL),
        ("at", OPTIONAL),
        call_id="open",
        content="done",
        id="m3",
        at=TIME,
    ),
    "add": Call(
        ("view", OPTIONAL),
        ("id", OPTIONAL),
        ("at", OPTIONAL),
        ("provider", OPTIONAL),
        message=USER,
        view=None,
        id="m4",
        at=TIME,
        provider="openai",
    ),
    "import_messages": Call(
        ("messages", {"list"}),
        ("progress", CODE),
        ("provider", OPTIONAL),
        messages=[USER],
        progress=None,
        provider="openai",
    ),
    "messages": Call(("all", {"bool"}), all=True),
    "items": Call(("active", {"bool"}), active=True),
    "messages_after": Call(("index", OPTIONAL), ("limit", {"int"}), index=3, limit=2),
    "newest": Call(("limit", {"int"}), limit=2),
    "messages_on": Call(page="usr-1"),
    "entry_before": Call(message=3),
    "message": Call(index=3),
    "page_of": Call(index=3),
    "mark_of": Call(index=3),
    "is_modified": Call(index=3),
    "prelude": Call(index=3),
    "date_messages": Call(("messages", OPTIONAL), messages=[]),
    "insert": Call(("at", OPTIONAL), data=USER, at=5),
    "delete": Call(indices=[1]),
    "replace": Call(indices=1, data=USER),
    "compress": Call(("summary", OPTIONAL | {"huge"}), indices=[1, 2], summary="in short"),
    "modify": Call(operations=[{"operation": "delete", "indices": [1]}]),
    "batch_start": Call(("boundary", OPTIONAL), boundary=5),
    "batch_end": Call(target=0),
}


def attempt(talk: Context, before: object, what: str, call: Callable[[], object]) -> Iterator[str]:
    """Make a call that must be refused. Yield errors of the refusal."""
    yield from refusal(what, call)
    if stored(talk) != before:
        yield f"{what}: something changed"


@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_are_refused_for_every_parameter(name: str) -> None:
    talk = full_talk()
    before = stored(talk)
    complaints: list[str] = []
    for parameter in CALLS[name].right:
        for label, value in WRONG.items():
            if label not in CALLS[name].legal.get(parameter, set()):
                arguments = CALLS[name].right | {parameter: value}
                call = lambda arguments=arguments: getattr(talk.conversation, name)(**arguments)  # noqa: E731
                complaints += attempt(talk, before, f"{name}({parameter}: {label})", call)
    assert complaints == []
    assert talk.check() == []


@pytest.mark.parametrize("name", CALLS)
def test_the_right_arguments_are_accepted(name: str) -> None:
    talk = full_talk()
    getattr(talk.conversation, name)(**CALLS[name].right)
    assert talk.check() == []


# Messages

DEEP: list[Any] = []
for _ in range(500):
    DEEP = [DEEP]
HOSTILE_MESSAGES: dict[str, Any] = {
    "nothing": [],
    "no role": {"content": "x"},
    "no such role": {"role": "nobody", "content": "x"},
    "role of another type": {"role": 5, "content": "x"},
    "content of another type": {"role": "user", "content": 5},
    "content with a surrogate": {"role": "user", "content": "\ud800"},
    "a part of another type": {"role": "user", "content": [5]},
    "a part without a type": {"role": "user", "content": [{"text": "x"}]},
    "a text part without text": {"role": "user", "content": [{"type": "text"}]},
    "a text part of another type": {"role": "user", "content": [{"type": "text", "text": 5}]},
    "calls of another type": {"role": "assistant", "content": "x", "tool_calls": "call"},
    "a call of another type": {"role": "assistant", "content": "x", "tool_calls": [5]},
    "a call without a name": {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {}}]},
    "a result of nobody's": {"role": "tool", "tool_call_id": "nobody", "content": "x"},
    "a result of another type": {"role": "tool", "tool_call_id": 5, "content": "x"},
    "deep": {"role": "user", "content": [{"type": "x", "deep": DEEP}]},
    "a long key": {"role": "user", "content": [{"type": "x", HUGE: float("nan")}]},
    "not finite": {"role": "user", "content": [{"type": "x", "n": float("nan")}]},
    "ours with a role of another type": Message(role=5, content="x"),  # type: ignore[arg-type]
    "ours with content of another type": Message(role="user", content=5),  # type: ignore[arg-type]
    "ours with an object": Message(role="user", content="x", meta={"a": object()}),
    "ours with a surrogate": Message(role="user", content="\ud800"),
    "ours with a part of another type": Message(role="user", content=[{"type": "text", "text": 5}]),
    "ours with a part without a type": Message(role="user", content=[{}]),
    "ours with a number too large": Message(role="user", content="x", meta={"a": 2**70}),
    "ours with calls of another type": Message(role="assistant", content="x", tool_calls=(5,)),  # type: ignore[arg-type]
    "ours, a result without an id": Message(role="tool", content="x"),
    "ours with an original that is none": Message(role="user", content="x", raw="no json"),
    "ours with a name of another type": Message(role="user", content="x", name=5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", HOSTILE_MESSAGES)
def test_a_hostile_message_is_refused_by_whatever_takes_one(name: str) -> None:
    talk = full_talk()
    before = stored(talk)
    message = HOSTILE_MESSAGES[name]
    conversation = talk.conversation
    takers: dict[str, Callable[[], object]] = {
        "add": lambda: conversation.add(message),
        "add several": lambda: conversation.add([USER, message]) if message else conversation.add(message),
        "insert": lambda: conversation.insert(message),
        "insert at": lambda: conversation.insert(message, at=3),
        "replace": lambda: conversation.replace(1, message),
        "modify": lambda: conversation.modify([{"operation": "insert", "data": message}]),
    }
    complaints = [found for what, call in takers.items() for found in attempt(talk, before, what, call)]
    assert complaints == []


@pytest.mark.parametrize("name", [name for name in HOSTILE_MESSAGES if name != "nothing"])
def test_an_import_takes_a_hostile_message_in_and_tells(name: str) -> None:
    talk = full_talk()
    shown = list(talk.messages())
    report = talk.import_messages([HOSTILE_MESSAGES[name], USER])
    assert report.findings != ()
    assert list(talk.messages())[: len(shown)] == shown
    assert talk.messages()[-1].text == "new"
    assert talk.check() == []


# Operations as data

HOSTILE_OPERATIONS: dict[str, Any] = {
    "no operation": {},
    "no such operation": {"operation": "destroy"},
    "an operation of another type": {"operation": ["delete"]},
    "a field too many": {"operation": "delete", "indices": [1], "index": 1},
    "a field that is no text": {"operation": "delete", "indices": [1], 5: 1},
    "indices as a number": {"operation": "delete", "indices": 1},
    "indices as text": {"operation": "delete", "indices": "1"},
    "an index as text": {"operation": "delete", "indices": ["1"]},
    "an index of another type": {"operation": "delete", "indices": [[1]]},
    "an index that is true": {"operation": "delete", "indices": [True]},
    "an index from the end": {"operation": "delete", "indices": [-1]},
    "an index too large": {"operation": "delete", "indices": [20]},
    "no indices": {"operation": "delete"},
    "two places to insert": {"operation": "insert", "indices": [1, 2], "data": USER},
    "nothing to insert": {"operation": "insert"},
    "nothing to put in place": {"operation": "replace", "indices": [1]},
    "a summary of another type": {"operation": "compress", "indices": [1], "data": 5},
    "a summary with a surrogate": {"operation": "compress", "indices": [1], "data": "\ud800"},
    "a boundary too large": {"operation": "batch_start", "indices": [21]},
    "two boundaries": {"operation": "batch_start", "indices": [1, 2]},
    "no target": {"operation": "batch_end"},
    "two targets": {"operation": "batch_end", "indices": [0], "batch": 1},
    "a target of another type": {"operation": "batch_end", "batch": "0"},
    "nothing to commit": {"operation": "batch_commit"},
}


@pytest.mark.parametrize("name", HOSTILE_OPERATIONS)
def test_a_hostile_operation_is_refused_with_all_that_stand_beside_it(name: str) -> None:
    talk = full_talk()
    before = stored(talk)
    operation: Mapping[str, Any] = HOSTILE_OPERATIONS[name]
    good = {"operation": "delete", "indices": [1]}
    complaints: list[str] = []
    for label, operations in {"alone": [operation], "last": [good, operation], "first": [operation, good]}.items():
        complaints += attempt(talk, before, label, lambda these=operations: talk.conversation.modify(these))  # type: ignore[misc]
    assert complaints == []
    assert talk.check() == []
