"""A handle follows every change: its view is the one that a new handle draws."""

import pytest

import quire
from quire import CompressionConfig, MemoryStorage
from tests.shallow_stack import shallow_stack


def test_a_handle_follows_what_another_one_wrote_after_refresh() -> None:
    storage = MemoryStorage()
    one, other = (quire.open(storage, "c") for _ in range(2))
    one.user("a")
    one.render()
    other.refresh()
    other.user("b")
    one.refresh()
    assert [message.content for message in one.render().messages if message.role == "user"] == ["a", "b"]


def test_a_temporary_block_is_seen_in_the_view_and_gone_after_it() -> None:
    ctx = quire.open("memory:")
    ctx.user("a")
    before = ctx.render().openai()
    with ctx.temporary():
        ctx.user("only now")
        assert "only now" in str(ctx.render().openai())
    assert ctx.render().openai() == before


def test_what_arrives_after_a_block_that_only_drew_is_shown() -> None:
    ctx = quire.open("memory:")
    ctx.user("a")
    ctx.render()
    with ctx.temporary():
        ctx.render()
    ctx.user("b")
    assert [message.content for message in ctx.render().messages if message.role == "user"] == ["a", "b"]


def test_a_block_that_another_writer_got_ahead_of_leaves_nothing_in_the_view() -> None:
    storage = MemoryStorage()
    one, other = (quire.open(storage, "c") for _ in range(2))
    one.user("a")
    other.refresh()
    with one.temporary():
        one.user("only now")
        one.render()
        other.pages.create_detail_page("Note", "", "text", "mem-0")
        other.user("b")  # on a page of the same key, by an entry of the same seq
    assert one.render().openai() == quire.open(storage, "c").render().openai()


def test_a_context_that_was_deleted_and_made_again_is_drawn_anew() -> None:
    storage = MemoryStorage()
    one = quire.open(storage, "c")
    one.user("old")
    one.render()
    quire.Library(storage).delete("c")
    other = quire.open(storage, "c")
    other.user("new")
    one.refresh()
    assert one.render().openai() == other.render().openai()


@pytest.mark.parametrize("segment", ["mem-0", "usr-0"])
def test_folders_may_lie_deeper_than_python_calls_go(segment: str) -> None:
    ctx = quire.open("memory:")
    ctx.user("a")
    folder = segment
    ctx.render()  # what is imported late is imported
    with shallow_stack(150):
        for number in range(250):
            folder = ctx.pages.create_contents_page(f"f {number}", "", folder)
        ctx.pages.create_detail_page("Leaf", "", "the deepest text", folder)
        assert "the deepest text" in str(ctx.render().openai())


def test_a_folder_in_the_cold_archive_is_no_longer_shown() -> None:
    store = quire.open_storage("memory:")
    ctx = quire.open(store, "agent", budget=4_000)
    for number in range(4):
        ctx.user(f"Question {number}")
        ctx.assistant(f"Answer {number}")
    pages = [ctx.conversation.page_of(index) for index in (0, 1)]
    folder = ctx.pages.create_contents_page("Part", "", "usr-0", [page for page in pages if page])
    assert "Question 0" in [message.text for message in ctx.render().messages]
    ctx.pages.archive(folder, cold=True)
    shown = [message.text for message in ctx.render().messages]
    assert "Question 0" not in shown
    assert shown == [message.text for message in quire.open(store, "agent").render(preview=True).messages]


def test_thinking_stays_after_a_reply_that_joins_the_one_before() -> None:
    store = quire.open_storage("memory:")
    ctx = quire.open(store, "agent", budget=100_000)
    ctx.user("Where is HAT136?")

    def reply(number: int) -> list[dict[str, object]]:
        return [
            {"type": "reasoning", "id": f"rs_{number}", "summary": [{"type": "summary_text", "text": f"why {number}"}]},
            {"role": "assistant", "content": f"answer {number}"},
        ]

    ctx.render()
    ctx.add([*reply(1), {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}])
    ctx.render()
    ctx.add(reply(2))  # the call has no result yet, so both replies are one message
    ctx.render()
    ctx.user("And now?")
    ctx.render()
    ctx.add(reply(3))
    own, other = (handle.render(preview=True).responses() for handle in (ctx, quire.open(store, "agent")))
    assert own == other
    assert [item["id"] for item in own if item.get("type") == "reasoning"][-1] == "rs_3"


def test_a_capacity_is_kept_above_the_threshold_of_folds_too() -> None:
    store = quire.open_storage("memory:")
    config = CompressionConfig(threshold=300, target_tokens=150, keep_turns=3)
    ctx = quire.open(store, "agent", budget=100_000, compression=config)
    ctx.system("Be brief. " * 60)
    ctx.assistant("It is at the gate. " * 10)
    ctx.pages.update_segment("usr", max_capacity=60)
    ctx.render()
    for text in ("Where is my flight?", "Where is my flight? " * 10):
        ctx.user(text)
        own = ctx.render()
        again = quire.open(store, "agent", compression=config).render(preview=True)
        assert own.openai() == again.openai()
    assert [part.kind for part in own.parts] == ["system", "preamble", "folded", "exchange"]
