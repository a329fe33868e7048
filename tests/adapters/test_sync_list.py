"""A context follows a list: new items are added once, removed items are not shown, also with restarts and races."""

from random import Random

import pytest

import quire
from quire import Message, ToolCall
from quire.adapters.sync_list import ListSync
from tests.marks import long

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


def test_a_broken_list_is_taken_in_whole_and_shown_legally(ctx: quire.Context) -> None:
    history: list[Item] = [("user", "one"), ("result", "c9", "nobody asked"), ("assistant", "two")]
    for end in (1, 2, 2, 3, 3):
        sync(ctx).update(history[:end])
    assert said(ctx) == ["one", "two"]
    assert [message.text for message in ctx.messages(all=True)] == ["one", "nobody asked", "two"]
    assert quire.check_legal(ctx.render().openai(), "openai") == []
    sync(ctx).update([("user", "other")])
    assert said(ctx) == ["one", "two", "other"]


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


SECRET = "my password is hunter2-KESTREL"
TALK: list[Item] = [("user", SECRET), ("assistant", "noted"), ("user", "thanks"), ("assistant", "welcome")]


@pytest.mark.parametrize("whole", [True, False])
def test_a_removed_first_message_is_gone_from_the_next_view(ctx: quire.Context, whole: bool) -> None:
    sync(ctx).update(TALK, whole=whole)
    sync(ctx).update([*TALK[1:], ("user", "more")], whole=whole)
    assert said(ctx) == ["noted", "thanks", "welcome", "more"]
    assert SECRET not in str(ctx.render().openai())
    assert ctx.conversation.is_modified(0)
    sync(ctx).update([*TALK, ("user", "more")], whole=whole)  # the list has it again
    assert said(ctx) == [text for _, text in TALK] + ["more"]


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


@pytest.mark.parametrize("seed", [0, 1, *long(*range(2, 20))])
def test_whatever_changes_in_the_list_the_conversation_is_the_list(seed: int, request: pytest.FixtureRequest) -> None:
    random, items = Random(seed), list[Item]()
    ctx = quire.open(quire.MemoryStorage(), budget=1_500)
    following = sync(ctx)
    for step in range(400 if request.config.getoption("--long") else 40):
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
