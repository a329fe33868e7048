"""Messages in documents, in the readable files, in find() and in check()."""

import json
from typing import Any

import pytest

from quire import Context, InvalidValue
from quire.model.pages import Mark
from tests.books import listed, refused
from tests.talks import full_talk, new_talk, said, texts

Document = dict[str, Any]


def parsed(talk: Context) -> Document:
    document: Document = json.loads(talk.pages.marshal())
    return document


def timeless(document: Document) -> Document:
    return {key: value for key, value in document.items() if key not in ("createdAt", "updatedAt")}


def marks(talk: Context) -> list[Mark]:
    return [talk.conversation.mark_of(index) for index in range(len(talk.messages(all=True)))]


# Documents


def test_an_exchange_is_written_with_its_messages_and_with_its_summary_if_it_has_one() -> None:
    pages = parsed(full_talk())["pages"]
    form = pages["usr-2"]
    assert form["messageCount"] == 3
    assert form["detail"].splitlines()[0] == 'Call a: look({"at": 1})'
    assert form["messages"] == [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "a", "name": "look", "arguments": '{"at": 1}'},
                {"id": "b", "name": "look", "arguments": '{"at": 1}'},
            ],
            "index": 2,
        },
        {"role": "tool", "content": "one flight", "tool_call_id": "a", "index": 3},
        {"role": "tool", "content": [{"type": "text", "text": "two flights"}], "tool_call_id": "b", "index": 4},
    ]
    summaries = {index: form["standin"] for index, form in pages.items() if "standin" in form}
    assert summaries == {"usr-6": "usr-8", "usr-7": "usr-8"}


def test_a_document_read_into_a_fresh_context_says_the_same() -> None:
    talk, copy = full_talk(), new_talk()
    copy.pages.unmarshal(talk.pages.marshal())
    assert timeless(parsed(copy)) == timeless(parsed(talk))
    assert said(copy, all=True) == said(talk, all=True)
    assert (said(copy), marks(copy)) == (said(talk), marks(talk))
    assert copy.pending_calls() == talk.pending_calls()
    assert copy.check() == []
    for one in (talk, copy):
        one.tool_result("never", "late")
        one.tool_result("given up", "late")
        one.pages.recall("usr-11")
        one.conversation.delete(8)
        assert one.pages.detail("usr-8") == "Assistant: second words"
    assert said(copy, all=True) == said(talk, all=True)
    assert said(copy) == said(talk)
    assert copy.check() == []


def test_a_document_read_into_another_conversation_numbers_its_messages_after_those_that_came() -> None:
    talk, other = full_talk(), new_talk()
    other.user("mine")
    other.user("also mine")
    other.pages.unmarshal(talk.pages.marshal())
    assert [index for index, _, _ in said(other, all=True)] == list(range(22))
    assert texts(other) == texts(talk)
    assert all(other.conversation.is_modified(index) for index in (0, 1))
    assert marks(other)[2:] == marks(talk)
    other.undo(other.seq)
    assert said(other) == [(0, "user", "mine"), (1, "user", "also mine")]
    assert other.check() == []


def test_the_end_of_a_batch_takes_back_in_the_copy_what_the_batch_did() -> None:
    talk, copy = new_talk(), new_talk()
    for text in "abc":
        talk.user(text)
    talk.conversation.batch_start()
    talk.conversation.compress([0, 1])
    talk.user("d")
    copy.pages.unmarshal(talk.pages.marshal())
    for one in (talk, copy):
        one.conversation.batch_end(0)
        assert (texts(one), listed(one.pages, "usr-0"), one.check()) == (
            ["a", "b", "c"],
            ["usr-1", "usr-2", "usr-3"],
            [],
        )


def test_a_document_read_into_its_own_context_adds_no_message() -> None:
    talk = full_talk()
    before, document = said(talk, all=True), parsed(talk)
    talk.pages.unmarshal(talk.pages.marshal())
    assert said(talk, all=True) == before
    assert timeless(parsed(talk)) == timeless(document)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "file_id": "f"}]},
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x.y/z"}}]},
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "strange", "value": [1, None]}]},
        {"role": "assistant", "content": None, "audio": {"id": "a1"}, "tool_calls": []},
        {"type": "reasoning", "id": "r1", "summary": []},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "a\0b 页 \U0001f600", "name": "Ann"},
    ],
)
def test_whatever_a_provider_gave_goes_around(message: Document) -> None:
    talk, copy = new_talk(), new_talk()
    talk.user("first")
    talk.add(message)
    copy.pages.unmarshal(talk.pages.marshal())
    assert list(copy.messages()) == list(talk.messages())
    assert copy.check() == []


PART = {"type": "text", "text": "x"}
CALL_OF_A = {"role": "assistant", "tool_calls": [{"id": "a", "name": "look"}]}
RESULT_OF_A = {"role": "tool", "tool_call_id": "a", "content": "1"}
MALFORMED: list[tuple[Any, str]] = [
    (None, "messages"),
    ([5], "messages[0]"),
    ([{}], "messages[0]"),
    ([{"role": "user", "content": {"type": "text"}}], "messages[0]"),
    ([{"role": "user", "content": "x", "index": 10**40}], "messages[0]"),
    ([{"role": "user", "content": "x", "raw": "no json"}], "messages[0].raw"),
    ([{"role": "user", "content": "x", "raw": '{"original": [1], "texts": [], "values": []}'}], "messages[0].raw"),
    ([{"role": "user", "content": "x", "meta": {"a": "\udfff"}}], "messages[0].meta.a"),
    ([{"role": "user", "content": [{}]}], "content[0].type"),
    ([{"role": "user", "content": [PART, {"type": "text"}]}], "content[1].text"),
    ([{"role": "user", "content": [{"type": "other", "kind": "k"}]}], "content[0]"),
    ([{"role": "user", "content": "x", "tool_call_id": "a"}], "messages[0].tool_call_id"),
    ([{"role": "assistant", "tool_calls": [{"id": 5, "name": "b"}]}], "messages[0]"),
    ([{"role": "user", "content": "x"}, RESULT_OF_A], "messages[1]"),
    ([RESULT_OF_A], "messages[0]"),
    ([CALL_OF_A, {"role": "tool", "tool_call_id": "b", "content": "1"}], "messages[1]"),
]


@pytest.mark.parametrize(("messages", "place"), MALFORMED)
def test_malformed_messages_are_refused_with_their_place(messages: Any, place: str) -> None:
    talk = full_talk()
    document = parsed(talk)
    document["pages"]["usr-1"]["messages"] = messages
    with refused(talk.pages, InvalidValue, "usr-1", place):
        talk.pages.unmarshal(json.dumps(document))
