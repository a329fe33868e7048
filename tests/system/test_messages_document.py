"""Messages in documents, in the readable files, in find() and in check()."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from quire import Context, FileStorage, InvalidValue, MemoryStorage, QuireError, Storage
from quire.core.records import BATCHES, Batch, NoteRecord, PageRecord, decode_page, encode_record, page_key
from quire.model.pages import Mark
from quire.storage.base import CALL, MESSAGE, NOTE, PAGE, Commit, Delete, Put, Write
from quire.system import Problem
from tests.books import refused
from tests.storage.folders import agrees, readable
from tests.talks import calling, full_talk, new_talk, said, texts

Document = dict[str, Any]


def parsed(talk: Context) -> Document:
    document: Document = json.loads(talk.pages.marshal())
    return document


def timeless(document: Document) -> Document:
    return {key: value for key, value in document.items() if key not in ("createdAt", "updatedAt")}


def marks(talk: Context) -> list[Mark]:
    return [talk.conversation.mark_of(index) for index in range(len(talk.messages(all=True)))]


# Documents


def test_an_exchange_is_written_with_its_messages() -> None:
    form = parsed(full_talk())["pages"]["usr-2"]
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


def test_a_document_read_back_into_its_own_context_keeps_every_index() -> None:
    talk = full_talk()
    before, messages, pending = parsed(talk), said(talk, all=True), talk.pending_calls()
    in_place, marked = said(talk), marks(talk)
    talk.pages.unmarshal(talk.pages.marshal())
    assert timeless(parsed(talk)) == timeless(before)
    assert (said(talk, all=True), said(talk), marks(talk)) == (messages, in_place, marked)
    assert talk.pending_calls() == pending
    assert talk.tool_result("open", "now") == 20
    assert talk.check() == []


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


def test_a_document_after_a_cleanup_goes_around() -> None:
    talk, copy = full_talk(), new_talk()
    talk.conversation.cleanup()
    copy.pages.unmarshal(talk.pages.marshal())
    assert said(copy, all=True) == said(talk, all=True)
    talk.pages.unmarshal(talk.pages.marshal())
    assert said(copy, all=True) == said(talk, all=True)
    assert (talk.check(), copy.check()) == ([], [])


@pytest.mark.parametrize("standin", ["gone", "", "sys-0", "mem-1", "usr-1", "nope-1", 5])
def test_what_was_compressed_behind_a_summary_that_is_none_can_be_deleted_all_the_same(standin: Any) -> None:
    talk = full_talk()
    if standin == "gone":
        talk.pages.remove_page("usr-8")
        talk.pages.unmarshal(talk.pages.marshal())
    else:
        document = parsed(talk)
        for index in ("usr-6", "usr-7"):
            document["pages"][index]["standin"] = standin
        talk.pages.unmarshal(json.dumps(document))
    before = parsed(talk)["pages"]
    talk.conversation.delete([8, 9])
    after = parsed(talk)["pages"]
    assert {index for index in before if before[index] != after.get(index)} == {"usr-6", "usr-7"}
    assert talk.check() == []


def test_a_summary_that_moved_still_stands_for_its_messages_in_a_document() -> None:
    talk, copy = full_talk(), new_talk()
    new = talk.pages.move_page("usr-8", "mem-0")["usr-8"]
    copy.pages.unmarshal(talk.pages.marshal())
    assert parsed(copy)["pages"]["usr-6"]["standin"] == parsed(talk)["pages"]["usr-6"]["standin"] == new
    assert copy.check() == []


def test_open_batches_go_into_a_document_and_stay_open_where_it_is_read() -> None:
    talk = new_talk()
    talk.user("one")
    talk.conversation.batch_start()
    talk.user("two")
    talk.pages.unmarshal(talk.pages.marshal())
    assert talk.conversation.mark_map().batch_boundaries == [0, 1]
    talk.undo(talk.seq)
    assert talk.conversation.mark_map().batch_boundaries == [0, 1]
    assert talk.check() == []


def test_what_came_in_broken_goes_around_marked() -> None:
    talk, copy = new_talk(), new_talk()
    talk.import_messages(
        [{"role": "tool", "tool_call_id": "x", "content": "lost"}, {"role": "user", "content": " "}, {"no": "message"}]
    )
    copy.pages.unmarshal(talk.pages.marshal())
    assert said(copy, all=True) == said(talk, all=True)
    assert marks(copy) == marks(talk) == [Mark.UNSHOWABLE] * 3
    assert texts(copy) == []


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
    ("hello", "messages"),
    ({"role": "user"}, "messages"),
    ([5], "messages[0]"),
    ([None], "messages[0]"),
    ([["user", "x"]], "messages[0]"),
    ([{}], "messages[0]"),
    ([{"role": "nobody", "content": "x"}], "messages[0]"),
    ([{"role": "user", "content": 5}], "messages[0]"),
    ([{"role": "user", "content": {"type": "text"}}], "messages[0]"),
    ([{"role": "user", "content": "x", "index": "0"}], "messages[0]"),
    ([{"role": "user", "content": "x", "index": True}], "messages[0]"),
    ([{"role": "user", "content": "x", "index": 10**40}], "messages[0]"),
    ([{"role": "user", "content": "x", "name": 5}], "messages[0]"),
    ([{"role": "user", "content": "x", "origin": "elsewhere"}], "messages[0]"),
    ([{"role": "user", "content": "x", "raw": "no json"}], "messages[0].raw"),
    ([{"role": "user", "content": "x", "raw": '{"original": null, "texts": [], "values": []}'}], "messages[0].raw"),
    ([{"role": "user", "content": "x", "raw": '{"original": {}, "texts": [], "values": []}'}], "messages[0].raw"),
    ([{"role": "user", "content": "x", "raw": '{"original": [1], "texts": [], "values": []}'}], "messages[0].raw"),
    ([{"role": "user", "content": "x", "raw": '{"original": {}, "texts": [[["a"], ["b"]]]}'}], "messages[0].raw"),
    ([{"role": "user", "content": "\ud800"}], "messages[0].content"),
    ([{"role": "user", "content": "x", "meta": {"a": "\udfff"}}], "messages[0].meta.a"),
    ([{"role": "user", "content": "x", "meta": {"a": 2**70}}], "messages[0]"),
    ([{"role": "user", "content": [5]}], "messages[0]"),
    ([{"role": "user", "content": [{}]}], "content[0].type"),
    ([{"role": "user", "content": [{"type": 5}]}], "content[0].type"),
    ([{"role": "user", "content": [{"type": "strange"}]}], "content[0].type"),
    ([{"role": "user", "content": [PART, {"type": "text"}]}], "content[1].text"),
    ([{"role": "user", "content": [{"type": "text", "text": 5}]}], "content[0].text"),
    ([{"role": "user", "content": [{"type": "image", "url": 5}]}], "content[0].url"),
    ([{"role": "user", "content": [{"type": "other", "kind": "k"}]}], "content[0]"),
    ([{"role": "user", "content": [{"type": "other", "kind": "k", "part": "no json"}]}], "content[0].part"),
    ([{"role": "user", "content": "x", "tool_calls": [{"id": "a", "name": "b"}]}], "messages[0].tool_calls"),
    ([{"role": "user", "content": "x", "tool_call_id": "a"}], "messages[0].tool_call_id"),
    ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
    ([{"role": "assistant", "tool_calls": [{"id": "a"}]}], "messages[0]"),
    ([{"role": "assistant", "tool_calls": [{"id": 5, "name": "b"}]}], "messages[0]"),
    ([RESULT_OF_A], "messages[0]"),
    ([{"role": "user", "content": "x"}, {"role": "user", "content": "y"}], "messages[1]"),
    ([{"role": "user", "content": "x"}, RESULT_OF_A], "messages[1]"),
    ([CALL_OF_A, {"role": "user", "content": "x"}], "messages[1]"),
    ([CALL_OF_A, RESULT_OF_A, RESULT_OF_A], "messages[2]"),
    ([CALL_OF_A, {"role": "tool", "tool_call_id": "b", "content": "1"}], "messages[1]"),
]


@pytest.mark.parametrize(("messages", "place"), MALFORMED)
def test_malformed_messages_are_refused_with_their_place(messages: Any, place: str) -> None:
    talk = full_talk()
    document = parsed(talk)
    document["pages"]["usr-1"]["messages"] = messages
    with refused(talk.pages, InvalidValue, "usr-1", place):
        talk.pages.unmarshal(json.dumps(document))


@pytest.mark.parametrize(
    ("index", "fields", "place"),
    [
        ("usr-0", {"messages": [{"role": "user", "content": "x"}]}, "usr-0"),
        ("usr-1", {"mark": 1}, "usr-1"),
        ("usr-1", {"mark": 99}, "usr-1"),
        ("usr-5", {"mark": "DELETED"}, "usr-5"),
        ("usr-5", {"mark": True}, "usr-5"),
    ],
)
def test_marks_and_messages_where_none_can_be_are_refused(index: str, fields: Document, place: str) -> None:
    talk = full_talk()
    document = parsed(talk)
    document["pages"][index] |= fields
    with refused(talk.pages, InvalidValue, place):
        talk.pages.unmarshal(json.dumps(document))


def test_one_message_on_two_pages_becomes_two_messages() -> None:
    talk = new_talk()
    talk.user("one")
    talk.user("two")
    document = parsed(talk)
    document["pages"]["usr-2"]["messages"] = document["pages"]["usr-1"]["messages"]
    talk.pages.unmarshal(json.dumps(document))
    assert said(talk) == [(0, "user", "one"), (2, "user", "one")]
    assert talk.check() == []


def test_a_message_changed_in_the_document_is_a_new_one() -> None:
    talk = new_talk()
    talk.user("one")
    talk.user("two")
    document = parsed(talk)
    document["pages"]["usr-1"]["messages"][0]["content"] = "changed"
    talk.pages.unmarshal(json.dumps(document))
    assert said(talk) == [(2, "user", "changed"), (1, "user", "two")]
    assert talk.conversation.message(0).text == "one"
    talk.undo(talk.seq)
    assert texts(talk) == ["one", "two"]


# Readable files


def test_the_readable_files_show_exchanges_and_follow_every_change(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "store")
    talk = full_talk(storage)
    root = tmp_path / "store" / "talk"
    agrees(root, talk.pages)
    header, text = readable(root)["usr-2"]
    assert (header["body"], header["type"]) == ([2, 3, 4], "DetailPage")
    assert text == (
        'Call a: look({"at": 1})\nCall b: look({"at": 1})\nResult of a: one flight\nResult of b: two flights'
    )
    assert readable(root)["usr-5"][0]["mark"] == "DELETED"
    steps: list[Callable[[], object]] = [
        lambda: talk.tool_result("open", "done"),
        lambda: talk.conversation.replace(3, {"role": "tool", "tool_call_id": "a", "content": "another"}),
        lambda: talk.conversation.delete([5, 8]),
        lambda: talk.conversation.batch_start(),
        lambda: talk.conversation.compress([1, 2]),
        lambda: talk.system("You are brave."),
        lambda: talk.conversation.batch_end(0),
        lambda: talk.rollback(9),
        lambda: talk.undo(talk.seq),
        lambda: talk.conversation.cleanup(),
        lambda: talk.pages.unmarshal(talk.pages.marshal()),
    ]
    for step in steps:
        step()
        agrees(root, talk.pages)
        assert talk.check() == []
    fork = talk.fork("branch")
    agrees(tmp_path / "store" / "branch", fork.pages)
    storage.close()
    again = FileStorage(tmp_path / "store")
    agrees(root, new_talk(again).pages)
    again.close()


# Search


def test_find_sees_what_is_said_and_not_what_an_edit_took_out() -> None:
    talk = full_talk()
    found = {query: {hit.index for hit in talk.find(query)} for query in ("seattle", "flights", "slip", "typo", "look")}
    assert found["seattle"] == {"usr-1"}
    assert found["flights"] == {"usr-2"}
    assert found["slip"] == set()
    assert found["typo"] == {"usr-10"}
    assert "usr-16" in found["look"]
    assert [hit.index for hit in talk.find("kept archive")] == ["usr-11"]
    assert {hit.index for hit in talk.find("second words")} == {
        "usr-6",
        "usr-7",
        "usr-8",
    }  # the summary and its messages
    assert [hit.index for hit in talk.find("careful")] == ["sys-1"]


def test_find_sees_again_what_came_back_and_no_more_what_a_batch_took_along() -> None:
    talk = new_talk()
    talk.user("kestrel")
    talk.conversation.delete(0)
    assert talk.find("kestrel") == []
    talk.undo(talk.seq)
    assert [hit.index for hit in talk.find("kestrel")] == ["usr-1"]
    talk.conversation.batch_start()
    talk.user("kestrel again")
    assert len(talk.find("kestrel")) == 2
    talk.conversation.batch_end(0)
    assert [hit.index for hit in talk.find("kestrel")] == ["usr-1"]


def test_find_sees_late_results_and_replaced_ones() -> None:
    talk = new_talk()
    talk.assistant(None, calling("a"))
    talk.tool_result("a", "wrong")
    talk.conversation.replace(1, {"role": "tool", "tool_call_id": "a", "content": "kestrel"})
    assert [hit.index for hit in talk.find("kestrel")] == ["usr-1"]
    assert talk.find("wrong") == []


# Checks

USR = page_key(2, 0)


def tamper(storage: Storage, writes: Sequence[Write]) -> None:
    """Write records that no operation would write."""
    found = storage.head("talk")
    assert found is not None
    storage.commit("talk", Commit(found.version, found.version, found.value, writes))


def headed(storage: Storage, number: int, **fields: object) -> Put:
    """Return a page of the conversation with other header fields, at its place."""
    record = storage.get("talk", PAGE, USR + number)
    assert record is not None
    page = decode_page(record)
    assert isinstance(page, PageRecord)
    header = replace(page.header, **fields)
    return Put(PAGE, page.key, encode_record(page.key, header), page.group, page.rank)


def batches(*boundaries: int) -> Put:
    note = NoteRecord(5, batches=tuple(Batch(boundary, 5) for boundary in boundaries))
    return Put(NOTE, BATCHES, encode_record(BATCHES, note))


Tampering = Callable[[Storage], Sequence[Write]]
BROKEN: list[tuple[int, str, str, Tampering]] = [
    (0, "usr-2", "message record 3 is missing", lambda _: [Delete(MESSAGE, 3)]),
    (0, "usr-1", "message record 99 is missing", lambda s: [headed(s, 1, numbers=(99,))]),
    (1, "usr-3", "message 1 is on 'usr-1' too", lambda s: [headed(s, 3, numbers=(1,))]),
    (1, "usr-5", "message 1 is on 'usr-1' too", lambda s: [headed(s, 5, numbers=(1,))]),
    (2, "usr-1", "deleted and in the tree", lambda s: [headed(s, 1, mark=Mark.DELETED)]),
    (2, "usr-3", "compressed and in the tree", lambda s: [headed(s, 3, mark=Mark.COMPRESSED)]),
    (0, "batch 1", "boundary 99", lambda _: [batches(99)]),
    (0, "batch 2", "boundary 3", lambda _: [batches(5, 3)]),
    (0, "batch 1", "boundary -1", lambda _: [batches(-1)]),
    (0, "message 3", "checksum", lambda _: [Put(MESSAGE, 3, b"nonsense")]),
    (0, "message 3", "checksum", lambda s: [Put(MESSAGE, 3, value_of(s, MESSAGE, 4))]),
    (0, "note 0", "checksum", lambda _: [Put(NOTE, BATCHES, b"nonsense")]),
    (0, "call 7", "checksum", lambda _: [Put(CALL, 7, b"nonsense")]),
]


def value_of(storage: Storage, family: Any, key: int) -> bytes:
    record = storage.get("talk", family, key)
    assert record is not None
    return record.value


@pytest.mark.parametrize(("invariant", "where", "text", "tampering"), BROKEN)
def test_what_is_broken_is_named_with_its_place(invariant: int, where: str, text: str, tampering: Tampering) -> None:
    storage = MemoryStorage()
    full_talk(storage)
    tamper(storage, tampering(storage))
    problems = new_talk(storage).check()
    assert any((p.invariant, p.where) == (invariant, where) and text in p.text for p in problems), problems
    assert all(isinstance(problem, Problem) for problem in problems)


def test_a_damaged_message_raises_when_it_is_touched_and_not_before() -> None:
    storage = MemoryStorage()
    full_talk(storage)
    tamper(storage, [Put(MESSAGE, 3, b"nonsense")])
    talk = new_talk(storage)
    assert talk.messages()[0].text == "You are careful."
    assert talk.pages.get_page("usr-2").tokens > 0
    touching: list[Callable[[], object]] = [
        lambda: talk.conversation.message(3),
        lambda: texts(talk),
        lambda: talk.pages.detail("usr-2"),
        lambda: talk.pages.marshal(),
        lambda: talk.find("flight"),
        lambda: talk.conversation.compress(2),
    ]
    for touch in touching:
        with pytest.raises(QuireError) as caught:
            touch()
        assert caught.value.code == "corrupt"
    assert talk.user("on") == 20


def test_a_missing_message_is_corrupt_and_not_skipped() -> None:
    storage = MemoryStorage()
    full_talk(storage)
    tamper(storage, [Delete(MESSAGE, 3)])
    talk = new_talk(storage)
    for touch in (lambda: talk.pages.detail("usr-2"), lambda: talk.find("flight"), lambda: talk.pages.marshal()):
        with pytest.raises(QuireError) as caught:
            touch()
        assert caught.value.code == "corrupt"
