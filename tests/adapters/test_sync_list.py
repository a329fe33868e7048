"""A context follows a list: new items are added once, removed items are not shown, also with restarts and races."""

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import quire
from quire import Message, ToolCall
from quire.adapters.sync_list import ListSync
from quire.model.pages import Mark

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
    return ListSync(ctx, parse, lambda item, _: "\n".join(item).encode())


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
        lambda item, _: repr(item).encode(),
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
def test_what_a_list_loses_at_its_beginning_is_not_shown(ctx: quire.Context, keep: int) -> None:
    history: list[Item] = [("user", f"on {n // 8}") if n % 2 else ("assistant", f"part {n // 4}") for n in range(1, 40)]
    for end in range(1, 40):
        sync(ctx).update(history[:end][-keep:])
        assert said(ctx) == [text for _, text in history[:end][-keep:]]
    assert [message.text for message in ctx.messages(all=True)] == [text for _, text in history]
    following = sync(ctx)
    following.update(history[-keep:])
    places = [place for _, place in following.find_origins(ctx.render()) if place is not None]
    assert [place.item for place in places[-2:]] == [keep - 2, keep - 1]


SECRET = "my password is hunter2-KESTREL"
TALK: list[Item] = [("user", SECRET), ("assistant", "noted"), ("user", "thanks"), ("assistant", "welcome")]


@pytest.mark.parametrize("whole", [True, False])
def test_a_removed_first_message_is_gone_from_the_next_view(ctx: quire.Context, whole: bool) -> None:
    sync(ctx).update(TALK, whole=whole)
    sync(ctx).update([*TALK[1:], ("user", "more")], whole=whole)
    assert said(ctx) == ["noted", "thanks", "welcome", "more"]
    assert SECRET not in str(ctx.render().openai())
    assert ctx.conversation.mark_of(0) is Mark.DELETED
    sync(ctx).update([*TALK, ("user", "more")], whole=whole)  # the list has it again
    assert said(ctx) == [text for _, text in TALK] + ["more"]


@pytest.mark.parametrize("whole", [True, False])
def test_an_edited_first_message_is_shown_once_in_its_place(ctx: quire.Context, whole: bool) -> None:
    sync(ctx).update(TALK, whole=whole)
    edited: list[Item] = [("user", "my password is …"), *TALK[1:]]
    for more in ([], [("user", "and?")], [("user", "and?"), ("assistant", "that is all")]):
        sync(ctx).update([*edited, *more], whole=whole)
        assert said(ctx) == [text for _, text in [*edited, *more]]
    assert ctx.render().openai()[-1]["content"] == "that is all"


def test_a_list_that_has_the_whole_conversation_can_begin_anew(ctx: quire.Context) -> None:
    sync(ctx).update(TALK, whole=True)
    sync(ctx).update([("user", "a new subject")], whole=True)
    assert said(ctx) == ["a new subject"]
    sync(ctx).update([], whole=True)
    assert said(ctx) == []
    assert len(ctx.messages(all=True)) == 5


def test_a_removed_secret_is_in_no_summary_and_no_recalled_page() -> None:
    ctx = quire.open(quire.MemoryStorage(), budget=1_500)
    history: list[Item] = list(TALK)
    for n in range(40):
        history += [("user", f"question {n} about the password " + "and more words " * 12), ("assistant", f"yes {n}")]
        sync(ctx).update(history, whole=True)
        ctx.render(recall=True)
    assert "hunter2" in str(ctx.render(recall=True).openai())
    assert len(ctx.render().openai()) < len(history)
    sync(ctx).update([*history[1:], ("user", "what was my password?")], whole=True)
    for shown in (ctx.render(recall=True), ctx.render()):
        assert "hunter2" not in str(shown.openai())
    assert "hunter2" not in ctx.tools.call("find", {"query": "password"})


def test_what_a_developer_changed_is_not_added_again(ctx: quire.Context) -> None:
    history: list[Item] = [("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")]
    history.append(("user", "five"))
    sync(ctx).update(history)
    ctx.conversation.delete(1)
    ctx.conversation.replace(2, {"role": "user", "content": "3"})
    ctx.conversation.compress([3], "four, in short")
    ctx.conversation.delete(4)
    sync(ctx).update([("user", "1"), *history[1:]])
    assert said(ctx) == ["1", "3"]
    assert "four, in short" in str(ctx.render().openai())


def test_what_a_developer_pinned_stays(ctx: quire.Context) -> None:
    sync(ctx).update(TALK)
    ctx.pages.pin("usr-1")
    sync(ctx).update(TALK[2:])
    assert said(ctx) == [SECRET, "thanks", "welcome"]


def _change(random: Random, items: list[Item], step: int) -> list[Item]:
    """Return a list with a random change: turns at the end, or something removed, edited or inserted anywhere."""
    place = random.randrange(len(items) + 1)
    match random.randrange(8):
        case 0:
            return items[place:]
        case 1:
            return items[:place]
        case 2:
            return [*items[:place], ("user", f"edited {step}"), *items[place + 1 :]]
        case 3:
            return [*items[:place], ("assistant", f"inserted {step}", "in two messages"), *items[place:]]
        case 4:
            return [("user", f"a summary {step}"), *items[place:]]
        case 5:
            call = f"c{step}"
            return [*items, ("call", call), ("result", call, f"result {step}"), ("assistant", "done")]
        case _:
            return [
                *items,
                ("user", random.choice(["go on", f"question {step} " + "long " * 30])),
                ("assistant", "yes"),
            ]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_changes_in_the_list_the_conversation_is_the_list(seed: int, request: pytest.FixtureRequest) -> None:
    random, items = Random(seed), list[Item]()
    ctx = quire.open(quire.MemoryStorage(), budget=1_500)
    following = sync(ctx)
    for step in range(400 if request.config.getoption("--long") else 50):
        items = _change(random, items, step)
        called = {item[1] for item in items if item[0] == "call"}
        items = [item for item in items if item[0] != "result" or item[1] in called]
        if random.random() < 0.5:
            following = sync(ctx)
        following.update(items, whole=True)
        expected = [text for item in items for text in (item[2:] if item[0] == "result" else item[1:])]
        assert said(ctx) == expected, f"seed {seed}, step {step}"
        if random.random() < 0.3:
            assert quire.check_legal(ctx.render().openai(), "openai") == [], f"seed {seed}, step {step}"
        seq = ctx.seq
        sync(ctx).update(items, whole=True)
        assert ctx.seq == seq, f"seed {seed}, step {step}"
    assert ctx.check() == []


class Named(NamedTuple):
    """An item with a name that its fingerprint leaves out."""

    name: str
    text: str


@pytest.mark.parametrize("is_warm", [False, True])
def test_the_newest_of_equal_items_is_the_origin(is_warm: bool, ctx: quire.Context) -> None:
    following = ListSync[Named](
        ctx, lambda item: [Message(role="user", content=item.text)], lambda item, _: item.text.encode()
    )
    items = [Named("A", "yes"), Named("B", "no")]
    following.update(items)
    if is_warm:
        list(following.find_origins(ctx.render()))
    items.append(Named("C", "yes"))
    following.update(items)
    found = [items[place.item].name for _, place in following.find_origins(ctx.render()) if place is not None]
    assert found == ["C", "B", "C"]


def test_an_item_that_cannot_be_stored_whole_is_kept_as_text(ctx: quire.Context) -> None:
    huge = 10**30
    following = ListSync[str](
        ctx, lambda item: [Message(role="user", content=item, meta={"n": huge})], lambda item, _: item.encode()
    )
    following.update(["a question"])
    [kept] = ctx.messages(all=True)
    assert "a question" in kept.text
