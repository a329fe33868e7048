"""A context follows a list: new items are added once, removed items are deleted, also with restarts and races."""

from pathlib import Path

import pytest

import quire
from quire.adapters.sync_list import ListSync
from quire.model.messages import Message, ToolCall

Item = tuple[str, ...]
"""Speaker and texts; several texts of one item are several messages."""


def parse(item: Item) -> list[Message]:
    role, *texts = item
    if role == "call":
        return [Message(role="assistant", tool_calls=(ToolCall(texts[0], "look"),))]
    if role == "result":
        return [Message(role="tool", tool_call_id=texts[0], content=texts[1])]
    return [Message(role="user" if role == "user" else "assistant", content=text) for text in texts]


def sync(ctx: quire.Context) -> ListSync[Item]:
    return ListSync(ctx, parse, lambda item: "\n".join(item).encode())


def said(ctx: quire.Context) -> list[str]:
    return [message.text or message.tool_calls[0].id for message in ctx.messages()]


@pytest.fixture
def ctx() -> quire.Context:
    return quire.open(quire.MemoryStorage(), budget=2_000)


def test_what_is_new_is_added_once(ctx: quire.Context) -> None:
    update = sync(ctx).update
    history: list[Item] = [("user", "one")]
    update(history)
    seq = ctx.seq
    update(history)
    assert ctx.seq == seq
    history += [("call", "c1"), ("result", "c1", "found"), ("assistant", "two", "three")]
    update(history)
    assert said(ctx) == ["one", "c1", "found", "two", "three"]
    assert ctx.seq == seq + 1


def test_equal_items_are_told_apart_by_what_stands_before_them(ctx: quire.Context) -> None:
    history: list[Item] = [("user", "go on"), ("assistant", "yes"), ("user", "go on"), ("assistant", "yes")]
    for end in range(1, 5):
        sync(ctx).update(history[:end])
    assert said(ctx) == ["go on", "yes", "go on", "yes"]


def test_after_a_restart_nothing_comes_twice(tmp_path: Path) -> None:
    history: list[Item] = [("user", f"question {n}") if n % 2 else ("assistant", f"answer {n}") for n in range(1, 40)]
    for end in range(1, 40, 7):
        with quire.open(tmp_path / "a.db") as ctx:
            sync(ctx).update([(*item,) for item in history[:end]])
    with quire.open(tmp_path / "a.db") as ctx:
        assert said(ctx) == [text for _, text in history[:36]]


def test_what_was_taken_back_is_deleted_and_what_came_instead_stands_there(ctx: quire.Context) -> None:
    update = sync(ctx).update
    update([("user", "one"), ("assistant", "wrong"), ("user", "no")])
    update([("user", "one"), ("assistant", "right")])
    assert said(ctx) == ["one", "right"]
    assert [message.text for message in ctx.messages(all=True)] == ["one", "wrong", "no", "right"]
    update([("user", "one"), ("assistant", "wrong"), ("user", "no")])  # back to the other branch
    assert said(ctx) == ["one", "wrong", "no"]
    update([("user", "one"), ("assistant", "wrong")])
    assert said(ctx) == ["one", "wrong"]
    update([("user", "one")])
    assert said(ctx) == ["one"]
    update([("user", "one"), ("assistant", "wrong")])
    assert said(ctx) == ["one", "wrong"]


def test_what_others_added_stays(ctx: quire.Context) -> None:
    update = sync(ctx).update
    update([("user", "one")])
    ctx.assistant("by hand")
    update([("user", "one"), ("user", "two")])
    assert said(ctx) == ["one", "by hand", "two"]


def test_a_view_names_where_its_whole_messages_come_from(ctx: quire.Context) -> None:
    long = "tool output " * 1_200
    history: list[Item] = [("user", "old " * 900), ("assistant", "a", "b"), ("call", "c"), ("result", "c", long)]
    following = sync(ctx)
    following.update(history)
    find_origins = list(following.find_origins(ctx.render()))
    whole = {message.text: place for message, place in find_origins if place is not None}
    for text, place in whole.items():
        assert parse(history[place.item])[place.part].text == text
    assert all(message.text not in (long, "old " * 900) for message, _ in find_origins)
    following.update([*history, ("user", "and now?")])
    assert ("and now?", (4, 0)) in [(message.text, place) for message, place in following.find_origins(ctx.render())]


def test_two_handles_that_follow_the_same_list_add_it_once(tmp_path: Path) -> None:
    history: list[Item] = [("user", f"line {n}") for n in range(12)]
    with quire.open(tmp_path / "a.db") as one, quire.open(tmp_path / "a.db") as two:
        first, second = sync(one), sync(two)
        for end in range(1, 13):
            first.update(history[:end])
            second.update(history[:end])
        assert said(one) == said(two) == [f"line {n}" for n in range(12)]


def test_a_call_that_waits_is_taken_back(ctx: quire.Context) -> None:
    update = sync(ctx).update
    update([("user", "one"), ("call", "c1")])
    assert [call.id for call in ctx.pending_calls()] == ["c1"]
    update([("user", "one"), ("assistant", "two")])
    assert said(ctx) == ["one", "two"]


def test_a_result_that_is_taken_back_leaves_its_call(ctx: quire.Context) -> None:
    update = sync(ctx).update
    update([("user", "one"), ("call", "c1"), ("result", "c1", "wrong")])
    update([("user", "one"), ("call", "c1"), ("result", "c1", "right")])
    assert said(ctx) == ["one", "c1", "right"]
    update([("user", "one"), ("call", "c1")])
    assert said(ctx) == ["one", "c1"]
    assert [call.id for call in ctx.pending_calls()] == ["c1"]


def test_a_broken_list_is_taken_in_whole_and_shown_legally(ctx: quire.Context) -> None:
    history: list[Item] = [("user", "one"), ("result", "c9", "nobody asked"), ("assistant", "two")]
    for end in (1, 2, 2, 3, 3):
        sync(ctx).update(history[:end])
    assert said(ctx) == ["one", "two"]
    assert [message.text for message in ctx.messages(all=True)] == ["one", "nobody asked", "two"]
    assert quire.check_legal(ctx.render().openai(), "openai") == []
    sync(ctx).update([("user", "other")])
    assert said(ctx) == ["one", "two", "other"]


def test_a_system_prompt_that_the_list_has_no_more_stays() -> None:
    ctx = quire.open(quire.MemoryStorage())
    following = ListSync[tuple[str, str]](
        ctx,
        lambda item: [Message(role="system" if item[0] == "s" else "user", content=item[1])],
        lambda i: repr(i).encode(),
    )
    following.update([("s", "be kind"), ("u", "one")])
    following.update([("u", "two")])
    assert [message.text for message in ctx.messages()] == ["be kind", "one", "two"]


def test_a_clipped_message_still_tells_its_item(ctx: quire.Context) -> None:
    following = sync(ctx)
    item: Item = ("result", "c", "tool output " * 1_200)
    following.update([("user", "go"), ("call", "c"), item])
    clipped = [
        message for message, place in following.find_origins(ctx.render()) if message.role == "tool" and not place
    ]
    assert [following.find_source(message) for message in clipped] == [(2, 0)]
    assert following.find_source(Message(role="user", content="mine")) is None


def test_a_list_that_begins_anew_goes_on_where_the_record_ends(ctx: quire.Context) -> None:
    for text in ("my code is KESTREL", "what is my code?", "hello"):
        sync(ctx).update([("user", text)])
        sync(ctx).update([("user", text), ("assistant", f"about {text}")])
    assert said(ctx)[::2] == ["my code is KESTREL", "what is my code?", "hello"]
    assert ctx.find("KESTREL")
    sync(ctx).update([("user", "my code is KESTREL")])  # repeats the first message
    assert said(ctx)[-1] == "my code is KESTREL"
    assert len(said(ctx)) == 7


@pytest.mark.parametrize("keep", [3, 7])
def test_a_list_cut_off_at_its_beginning_is_added_once(ctx: quire.Context, keep: int) -> None:
    history: list[Item] = [("user", f"on {n // 8}") if n % 2 else ("assistant", f"part {n // 4}") for n in range(1, 40)]
    for end in range(1, 40):
        sync(ctx).update(history[:end][-keep:])
    assert said(ctx) == [text for _, text in history]
    following = sync(ctx)
    following.update(history[-keep:])
    places = [place for _, place in following.find_origins(ctx.render()) if place is not None]
    assert [place.item for place in places[-2:]] == [keep - 2, keep - 1]
