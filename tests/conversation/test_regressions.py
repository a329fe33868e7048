"""Single bugs that the state machine of `test_machine.py` found."""

from typing import Any

import pytest

import quire
from quire import InvalidOperation, Lifecycle
from tests.talks import calling, new_talk, said, texts


def test_the_end_of_a_batch_takes_a_late_result_off_a_deleted_exchange() -> None:
    talk = new_talk()
    talk.assistant(None, calling("a", "b"))
    talk.tool_result("a", "early")
    talk.user("Go on.")
    talk.conversation.batch_start()
    talk.tool_result("b", "late")
    talk.conversation.delete(0)
    done = talk.conversation.batch_end(0)
    assert done.restored == (0, 1)
    assert [index for index, _, _ in said(talk)] == [0, 1, 2]
    assert talk.conversation.is_modified(3)
    assert talk.check() == []


def test_the_end_of_a_batch_names_every_late_result_it_takes_back() -> None:
    talk = new_talk()
    talk.assistant(None, calling("a", "b"))
    talk.conversation.batch_start()
    talk.tool_result("a", "one")
    talk.tool_result("b", "two")
    assert talk.conversation.batch_end(0).covered == (1, 2)
    assert [call.id for call in talk.pending_calls()] == ["a", "b"]


def test_the_end_of_a_batch_brings_back_the_first_words_of_an_exchange_that_was_replaced_and_deleted() -> None:
    talk = new_talk()
    talk.assistant("Let me look.", calling("a"))
    talk.tool_result("a", "found")
    talk.user("Go on.")
    talk.conversation.batch_start()
    talk.conversation.replace(0, {"role": "assistant", "content": "Looking!", "tool_calls": _calls("a")})
    talk.conversation.delete(1)
    assert talk.conversation.batch_end(0).restored == (0, 1)
    assert texts(talk) == ["Let me look.", "found", "Go on."]


def test_the_end_of_a_batch_gives_messages_back_to_the_summary_they_stood_behind() -> None:
    talk = new_talk()
    talk.user("one")
    talk.user("two")
    talk.conversation.compress(0, "First summary.")
    compression = talk.seq
    talk.conversation.batch_start()
    talk.undo(compression)
    talk.conversation.compress(0, "Second summary.")
    talk.conversation.batch_end(0)
    assert [item.content for item in talk.items(active=True)] == ["two", "First summary."]
    talk.conversation.delete(0)
    assert [item.content for item in talk.items(active=True)] == ["two"]


def test_what_an_undo_brought_back_in_a_temporary_block_is_gone_after_it() -> None:
    talk = new_talk()
    talk.user("one")
    talk.user("two")
    talk.conversation.delete(0)
    with talk.temporary():
        talk.undo(talk.seq - 1)
        assert texts(talk) == ["one", "two"]
        talk.pages.pin("usr-1")
    assert texts(talk) == ["two"]
    assert talk.check() == []


def test_a_summary_leaves_with_the_messages_it_stands_for() -> None:
    talk = new_talk()
    for word in ("one", "two", "three"):
        talk.user(word)
    talk.conversation.compress([1, 2])
    talk.conversation.batch_start(2)
    talk.conversation.batch_end(0)
    assert [item.content for item in talk.items(active=True)] == ["one", "User: two"]
    talk.conversation.batch_start(1)
    talk.conversation.batch_end(0)
    assert [item.content for item in talk.items(active=True)] == ["one"]


def test_a_pinned_summary_stays_until_it_is_unpinned() -> None:
    talk = new_talk()
    talk.user("one")
    talk.user("two")
    talk.conversation.batch_start()
    (summary,) = talk.conversation.compress(0).summaries
    talk.pages.pin(summary)
    before = talk.pages.marshal()
    with pytest.raises(InvalidOperation, match="unpin"):
        talk.conversation.delete(0)
    with pytest.raises(InvalidOperation, match="unpin"):
        talk.conversation.batch_end(0)
    assert talk.pages.marshal() == before
    talk.pages.unpin(summary)
    talk.conversation.batch_end(0)
    assert texts(talk) == ["one", "two"]
    assert talk.pages.get_page("usr-1").lifecycle is Lifecycle.ACTIVE


def test_a_system_message_is_the_prompt_of_a_fork_in_which_nothing_was_said() -> None:
    talk = new_talk()
    empty = talk.seq
    talk.user("Hello.")
    fork = talk.fork("fresh", at=empty)
    fork.add([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}])
    fork.add({"role": "system", "content": "A later note."})
    assert [fork.conversation.page_of(index) for index in range(3)] == ["sys-1", "usr-2", "usr-3"]
    assert fork.pages.get_page("sys-1").pinned


def _calls(*ids: str) -> list[dict[str, object]]:
    return [{"id": call.id, "function": {"name": call.name, "arguments": call.arguments}} for call in calling(*ids)]


def test_an_item_after_a_late_system_message_starts_anew() -> None:
    ctx = new_talk()
    ctx.user("Hello")
    ctx.add([{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}])
    ctx.add({"role": "system", "content": "Be quick."})
    ctx.add({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"})
    assert [message.role for message in ctx.messages()] == ["user", "assistant", "system", "assistant"]


def test_a_replaced_message_that_is_taken_back_gives_the_page_its_old_name() -> None:
    def call(text: str) -> dict[str, Any]:
        calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
        return {"role": "assistant", "content": text, "tool_calls": calls}

    ctx = quire.open("memory:")
    ctx.add([{"role": "user", "content": "q"}, call("Looked"), {"role": "user", "content": "next"}])
    with ctx.temporary():
        ctx.conversation.replace([1], [call("Secret")])
    assert ctx.pages.get_page("usr-2").name == "Looked"
    ctx.conversation.batch_start()
    ctx.conversation.replace([1], [call("Secret")])
    ctx.pages.update_page("usr-2", name="Given")
    ctx.conversation.batch_end(0)
    assert ctx.pages.get_page("usr-2").name == "Given"


@pytest.mark.parametrize("pinned", [False, True])
def test_a_summary_gets_its_size_back_with_its_text(pinned: bool) -> None:
    talk = new_talk()
    talk.assistant(None, calling("a", "b"))
    talk.tool_result("a", "early")
    talk.user("Go on.")
    (summary,) = talk.conversation.compress([0, 1]).summaries
    if pinned:
        talk.pages.pin(summary)
    before, size = talk.seq, _shown_size(talk, summary)
    talk.conversation.batch_start()
    talk.tool_result("b", "late, and much longer than the first result")
    assert _shown_size(talk, summary) > size
    if pinned:
        talk.rollback(before)
    else:
        talk.conversation.batch_end(0)
    assert _shown_size(talk, summary) == size


def _shown_size(talk: quire.Context, index: str) -> int:
    return talk.pages._engine.current().require_page(index).header.clip
