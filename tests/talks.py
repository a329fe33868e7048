"""Shared parts of the conversation tests: a context with the tests' counter, and comparisons."""

import json
from typing import Any

import quire
from quire import Context, MemoryStorage, Storage
from tests.books import WordCounter


def new_talk(storage: Storage | None = None, name: str = "talk", **options: Any) -> Context:
    """Return a context with the default segments and the tests' counter."""
    return quire.open(MemoryStorage() if storage is None else storage, name, **{"counter": WordCounter()} | options)


def calling(*ids: str) -> list[quire.ToolCall]:
    """Return tool calls with these ids."""
    return [quire.ToolCall(id, "look", '{"at": 1}') for id in ids]


def full_talk(storage: Storage | None = None, name: str = "talk") -> Context:
    """Return a conversation with every kind of content; the comments give the message indices."""
    talk = new_talk(storage, name)
    talk.system("You are careful.")  # 0, sys-1
    talk.user("I want to fly to Seattle.")  # 1, usr-1
    talk.assistant(None, calling("a", "b"))  # 2, usr-2
    talk.tool_result("a", "one flight")  # 3
    talk.tool_result("b", [{"type": "text", "text": "two flights"}])  # 4
    talk.assistant("There are two.")  # 5, usr-3
    talk.user(
        [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "https://x.y/z.png"}}]
    )  # 6
    talk.user("a slip")  # 7, usr-5
    talk.conversation.delete(7)
    talk.user("first words")  # 8, usr-6
    talk.assistant("second words")  # 9, usr-7
    talk.conversation.compress([8, 9])  # usr-8
    talk.user("a typo")  # 10, usr-9
    talk.conversation.replace(10, {"role": "user", "content": "no typo"})  # 11, usr-10
    talk.user("kept in the archive")  # 12, usr-11
    talk.pages.archive("usr-11", cold=True)
    talk.assistant(None, calling("never"))  # 13, usr-12
    talk.user("Go on.")  # 14, usr-13
    talk.assistant("Looking.", calling("late", "given up"))  # 15, usr-14
    talk.tool_result("late", "found")  # 16
    talk.close_calls()
    talk.user("And now?")  # 17, usr-15
    talk.assistant(None, calling("open", "shut"))  # 18, usr-16
    talk.tool_result("shut", "done")  # 19
    talk.pages.create_detail_page("note", "of mine", "a note", "mem-0")
    assert talk.check() == []
    return talk


def said(talk: Context, *, all: bool = False) -> list[tuple[int, str, Any]]:
    """Return the messages with their indices and roles."""
    return [(message.index, message.role, message.content) for message in talk.messages(all)]


def texts(talk: Context) -> list[str]:
    """Return the texts of the conversation, in order."""
    return [message.text for message in talk.messages()]


def outline(talk: Context) -> dict[str, Any]:
    """Return the whole context without the parts that no rollback restores: times, counters, pins and permissions."""
    document: dict[str, Any] = json.loads(talk.pages.marshal())
    for form in [*document["segments"], *document["pages"].values()]:
        for field in ("createdAt", "updatedAt", "nextIndex", "permission", "pinned"):
            form.pop(field, None)
    batches = talk.conversation.mark_map().batch_boundaries
    return {"segments": document["segments"], "pages": document["pages"], "batches": batches}


def stored(talk: Context) -> tuple[object, ...]:
    """Return everything that can be observed of a context."""
    conversation = talk.conversation
    marks = [conversation.mark_of(index) for index in range(len(talk.messages(all=True)))]
    places = [conversation.page_of(index) for index in range(len(marks))]
    return (
        talk.pages.marshal(),
        list(talk.history()),
        list(talk.messages()),
        list(talk.messages(all=True)),
        marks,
        places,
        conversation.mark_map(),
        talk.pending_calls(),
        talk.pages.checkpoints(),
    )
