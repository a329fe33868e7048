"""Thinking goes back only after exactly what was sent before it, and the tail stays until the next fold."""

import os
import random
from contextlib import suppress
from typing import Any

import pytest

import quire
from quire import InvalidValue
from quire.view.thinking import ThinkingChain
from tests.marks import broad
from tests.view.signing import Signer
from tests.windows.sample_apps import Counter

SEED = int(os.environ.get("QUIRE_SEED", "0"))
WALKS, LONG = 15, 2_000
STEPS = 40


class Talk:
    """A context with a window and a signing model, and random operations on it."""

    def __init__(self, number: int, budget: int = 900) -> None:
        self.chance = random.Random(number)
        self.model = Signer()
        self.ctx = quire.open("memory:", budget=budget, key="kestrel")
        self.ctx.windows.register(Counter)
        self.ctx.windows.open("counter")
        self.ctx.system("Be brief.")
        self.tools: list[Any] | None = None
        self.trace: list[str] = []

    def step(self) -> None:
        operation = self.chance.choice(OPERATIONS)
        self.trace.append(operation.__name__)
        with suppress(quire.InvalidOperation, quire.InvalidValue):  # refused in this state
            operation(self)

    def ask(self, calls: int = 0, **options: Any) -> None:
        view = self.ctx.render(tools=self.tools, **options)
        self.model.check(view.anthropic(), self.tools)
        assert view.tokens <= view.budget
        self.ctx.add(self.model.reply(calls=calls), view=self.chance.choice([None, view]))
        for call in self.ctx.pending_calls():
            self.ctx.tool_result(call.id, "found " * self.chance.randint(1, 30))

    def some_message(self) -> int:
        return self.chance.choice([message.index for message in self.ctx.messages()])


def turn(talk: Talk) -> None:
    talk.ctx.user("Question " + "word " * talk.chance.randint(1, 40))
    for _ in range(talk.chance.randint(0, 4)):
        talk.ask(calls=1)
    talk.ask(recall=talk.chance.choice([None, True]))


def change_window(talk: Talk) -> None:
    talk.ctx.windows.act("counter_1", "count")


def write_note(talk: Talk) -> None:
    talk.ctx.pages.create_detail_page("Note", "", "A note of the developer.", "mem-0")


def agent_writes(talk: Talk) -> None:
    talk.ctx.agent.create_detail_page("Plan", "", "Look first.", "mem-0")


def open_page(talk: Talk) -> None:
    hidden = [page.index for page in talk.ctx.pages.children("usr-0") if page.visibility is quire.Visibility.HIDDEN]
    if hidden:
        talk.ctx.agent.expand_details(talk.chance.choice(hidden))


def undo(talk: Talk) -> None:
    talk.ctx.undo(talk.chance.choice([entry.seq for entry in talk.ctx.history()][-8:]))


def roll_back(talk: Talk) -> None:
    talk.ctx.rollback(talk.chance.choice([entry.seq for entry in talk.ctx.history()][-8:]))


def delete(talk: Talk) -> None:
    talk.ctx.conversation.delete(talk.some_message())


def replace(talk: Talk) -> None:
    talk.ctx.conversation.replace(talk.some_message(), {"role": "user", "content": "Another text."})


def insert(talk: Talk) -> None:
    talk.ctx.conversation.insert({"role": "user", "content": "Inserted."}, at=talk.some_message())


def compress(talk: Talk) -> None:
    talk.ctx.conversation.compress(talk.some_message())


def end_batch(talk: Talk) -> None:
    talk.ctx.conversation.batch_start()
    turn(talk)
    talk.ctx.conversation.batch_end(0)


def temporary(talk: Talk) -> None:
    with talk.ctx.temporary():
        turn(talk)


def prompt(talk: Talk) -> None:
    talk.ctx.system(talk.chance.choice(["Be brief.", "Be kind."]))


def import_replies(talk: Talk) -> None:
    block = {"type": "thinking", "thinking": "Foreign.", "signature": "never-made"}
    talk.ctx.import_messages([{"role": "assistant", "content": [block, {"type": "text", "text": "Imported."}]}])


def reply_without_a_view(talk: Talk) -> None:
    talk.ctx.user("A first one.")
    talk.ctx.render()
    talk.ctx.user("And a second one.")  # this was not sent to the model
    talk.ctx.add({"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "never-made"},
                                                   {"type": "text", "text": "By hand."}]})  # fmt: skip


def other_tools(talk: Talk) -> None:
    schema = {"name": "look", "input_schema": {"type": "object"}}
    talk.tools = talk.chance.choice([None, [schema], [schema, {**schema, "name": "more"}]])


def fork(talk: Talk) -> None:
    talk.ctx = talk.ctx.fork(f"fork-{talk.ctx.seq}")


def reopen(talk: Talk) -> None:
    ctx = quire.open(talk.ctx.pages.storage, talk.ctx.name, key="kestrel")
    ctx.windows.register(Counter)
    talk.ctx = ctx


def budget(talk: Talk) -> None:
    talk.ctx.budget = talk.chance.choice([700, 900, 1_500])


OPERATIONS: tuple[Any, ...] = (
    *[turn] * 8,
    *[change_window] * 3,
    *(write_note, agent_writes, open_page, undo, roll_back, delete, replace, insert, compress, end_batch, temporary),
    *(prompt, import_replies, reply_without_a_view, other_tools, fork, reopen, budget),
)


def walk(number: int) -> Talk:
    talk = Talk(number)
    for _ in range(STEPS):
        talk.step()
    talk.ctx.user("The last one.")
    talk.ask()
    return talk


def test_no_block_goes_back_after_another_prefix_whatever_is_done(request: pytest.FixtureRequest) -> None:
    walks = LONG if request.config.getoption("--long", default=False) else WALKS
    legal = 0
    for number in range(SEED, SEED + walks):
        talk = walk(number)
        assert talk.model.illegal == [], f"QUIRE_SEED={number}: {talk.trace}"
        legal += talk.model.legal
    assert legal > 20 * walks  # much of it does go back


def test_the_oracle_finds_a_rule_that_is_too_loose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThinkingChain, "_matches", lambda chain, place, reply: True)
    assert any(walk(number).model.illegal for number in range(SEED, SEED + 3))


@pytest.mark.parametrize("budget", [6_000, *broad(100_000)])
def test_three_hundred_steps_of_one_turn(budget: int) -> None:
    """Every block since the last fold comes back as it was; a fold inside the turn ends the thinking before it."""
    talk = Talk(0, budget)
    ctx = talk.ctx
    ctx.user("Find it.")
    since: list[str] = []
    folds = 0
    for number in range(300):
        view = ctx.render()
        request = view.anthropic()
        if view.fold is not None:
            folds += 1
            since = []
        assert talk.model.check(request) == since
        if number % 10 == 0 or view.fold is not None:  # checking a long request takes longer than making it
            assert quire.check_legal(request, "anthropic") == []
        assert view.tokens <= budget
        reply = talk.model.reply(calls=1)
        ctx.add(reply)
        since.append(reply["content"][0]["signature"])
        ctx.tool_result(f"call-{number}-0", "found " * 12)
        if number % 7 == 0:
            ctx.windows.act("counter_1", "count")
    assert talk.model.illegal == []
    assert (folds == 0) is (budget == 100_000)
    blocks = [part for message in ctx.messages() for part in message.content or () if isinstance(part, dict)]
    assert sum(part["type"] == "thinking" for part in blocks) == 300  # the record keeps them all


def test_tokens_count_the_thinking_that_is_sent_and_no_other() -> None:
    ctx = quire.open("memory:", budget=8_000)
    model = Signer()
    ctx.user("Hello")
    model.check(ctx.render().anthropic())
    ctx.add(model.reply("Hi."))
    sent = ctx.render()
    ctx.conversation.insert({"role": "user", "content": "Hello"}, at=0)
    left = ctx.render()
    assert "signature-0" in str(sent.anthropic())
    assert "signature-0" not in str(left.anthropic())
    thought = ctx.pages.counter.count("Thought 0. " * 3)
    assert left.tokens == sent.tokens - thought + ctx.pages.counter.count("Hello") + 4


def test_a_reply_from_another_handle_needs_its_view() -> None:
    storage = quire.MemoryStorage()
    model = Signer()
    one = quire.open(storage, budget=8_000)
    one.user("Hello")
    view = one.render()
    model.check(view.anthropic())
    other = quire.open(storage)
    first = model.reply("One.")
    other.add(first, view=view)
    assert "signature-0" in str(other.render().anthropic())
    third = quire.open(storage)
    third.add(model.reply("Two."))
    assert "signature-1" not in str(third.render().anthropic())
    assert "signature-0" in str(third.render().anthropic())


def test_a_preview_is_not_stored_and_a_view_of_another_context_is_refused() -> None:
    ctx = quire.open("memory:", budget=8_000)
    ctx.user("Hello")
    reply = {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "s"},
                                              {"type": "text", "text": "Hi."}]}  # fmt: skip
    strange = quire.open("memory:").render()
    with pytest.raises(InvalidValue, match="another context"):
        ctx.add(reply, view=strange)
    with pytest.raises(InvalidValue, match="a View is needed"):
        ctx.assistant("Hi.", view="view")  # type: ignore[arg-type]
    assert len(ctx.messages()) == 1
    ctx.add(reply, view=ctx.render(preview=True))
    assert "signature" not in str(ctx.render().anthropic())


def test_recall_comes_once_for_each_user_message_and_not_twice() -> None:
    ctx = quire.open("memory:", budget=4_000)
    ctx.pages.hide(ctx.pages.create_detail_page("Cellar", "", "The key of the cellar hangs at the door.", "mem-0"))
    ctx.user("Where is the key of the cellar?")
    assert [part.kind for part in ctx.render(recall=True).tail] == ["recalled"]
    ctx.add({"role": "assistant", "content": None, "tool_calls": [quire_call("a")]})
    ctx.tool_result("a", "done")
    view = ctx.render(recall=True)
    assert view.tail == ()
    assert sum("hangs at the door" in message.text for message in view.messages) == 1
    ctx.assistant("At the door.")
    ctx.user("Again: where is the key of the cellar?")
    assert sum("hangs at the door" in message.text for message in ctx.render(recall=True).messages) == 1
    ctx.pages.remove_page("mem-1")  # what is gone is not shown any more
    assert "hangs at the door" not in str(ctx.render(recall=True).openai())


def test_a_cleanup_destroys_what_views_showed_of_deleted_messages() -> None:
    ctx = quire.open("memory:", budget=4_000)
    ctx.user("The key of the cellar hangs at the door.")
    ctx.assistant("Noted.")
    ctx.pages.archive("usr-1")
    ctx.user("Where is the key of the cellar?")
    ctx.render(recall=True)
    reply = ctx.assistant("It is there.")
    assert "hangs at the door" in str(ctx.conversation.prelude(reply))
    ctx.conversation.delete(0)
    assert "hangs at the door" not in str(ctx.render().openai())
    done = ctx.conversation.cleanup()
    assert quire.open(ctx.pages.storage).conversation.prelude(done.renumbered[reply]) == []


def quire_call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}}


def tokens_before_a_fold(calls: int) -> int:
    """Return the size of the last view before a fold at a user message."""
    ctx = quire.open("memory:", budget=2_000)
    model = Signer()
    before = 0
    while True:
        ctx.user("Question " + "word " * 20)
        view = ctx.render()
        if view.fold is not None:
            return before
        before = view.tokens
        model.check(view.anthropic())
        ctx.add(model.reply(calls=calls))
        for call in ctx.pending_calls():
            ctx.tool_result(call.id, "found")


def test_at_a_user_message_a_view_with_thinking_and_calls_folds_early() -> None:
    assert 0.75 * 2_000 < tokens_before_a_fold(calls=1) <= 0.85 * 2_000
    assert tokens_before_a_fold(calls=0) > 0.9 * 2_000


def test_thinking_is_bound_to_the_windows_among_the_messages_as_they_are_shown() -> None:
    ctx = quire.open("memory:", budget=900)
    ctx.windows.register(Counter)
    for _ in range(6):
        ctx.windows.open("counter")
    signer = Signer()
    for turn in range(12):
        ctx.user(f"Question {turn}. " + "Please look at all of it. " * turn)
        for _ in range(2):
            signer.check(ctx.render(windows="inline").anthropic())
            ctx.add(signer.reply(calls=1))
            call = ctx.pending_calls()[0].id
            ctx.tool_result(call, "A long result. " * 5 * turn)
            ctx.pages.update_segment("win", max_capacity=(0, 60, 120)[turn % 3])  # other windows are lines
    assert signer.legal
    assert not signer.illegal


def test_inline_windows_count_beside_the_same_windows_in_preludes() -> None:
    ctx = quire.open("memory:", budget=1_500)
    ctx.windows.register(Counter)
    for _ in range(3):
        ctx.windows.open("counter")
    ctx.user("Hello")
    ctx.render()
    ctx.assistant("Hello")  # the windows stay before it
    for turn in range(40):
        ctx.user(f"Question {turn}: " + "more words " * 8)
        assert ctx.render(windows="inline").tokens <= 1_500
        ctx.assistant("Yes, " * 10)


def test_thinking_stays_bound_when_a_developer_adds_a_page() -> None:
    storage = quire.MemoryStorage()
    ctx = quire.open(storage, budget=1_500)
    ctx.pages.create_detail_page("Manual", "", "The pump has two valves. " * 5, "mem-0")
    folds = 0
    while not folds:
        ctx.user("What about the pump? " * 8)
        folds += ctx.render().fold is not None
        ctx.assistant("The pump is fine. " * 8)
    signer = Signer()
    ctx.user("And now?")
    signer.check(ctx.render().anthropic())
    ctx.add(signer.reply())
    ctx.pages.create_detail_page("Note", "", "A new valve.", "mem-0")
    ctx = quire.open(storage)  # it draws everything
    ctx.user("Really?")
    assert signer.check(ctx.render().anthropic())
    ctx.pages.set_detail("mem-1", "The pump has three valves. " * 5)  # it is before all replies
    assert not signer.check(ctx.render().anthropic())
    assert not signer.illegal


def test_a_note_of_the_agent_that_was_recalled_stays_before_the_reply() -> None:
    ctx = quire.open("memory:", budget=3_000)
    ctx.tools.call("write_page", {"name": "Order 77", "text": "The refund of order 77 waits for the bank."})
    ctx.user("What about the refund of order 77?")
    view = ctx.render(recall=True)
    assert [part.kind for part in view.tail] == ["recalled"]
    ctx.assistant("It waits.")
    assert ctx.render(recall=True).shared_prefix == view.tokens


@pytest.mark.parametrize("words", [34, 58, 94])
def test_a_view_without_a_fold_begins_with_the_view_before(words: int) -> None:
    ctx = quire.open("memory:", budget=800)
    ctx.windows.register(Counter)
    ctx.windows.open("counter")
    ctx.pages.create_detail_page("Manual", "", "The pump has two valves. " * 6, "mem-0")
    signer = Signer()
    before: quire.View | None = None
    for turn in range(3):
        ctx.user(f"Question {turn}: " + "what about the pump? " * 60)
        for _ in range(3):
            view = ctx.render()
            assert before is None or view.fold is not None or view.shared_prefix == before.tokens
            signer.check(view.anthropic())
            ctx.add(signer.reply(calls=1))
            ctx.tool_result(ctx.pending_calls()[0].id, "valve " * words)
            before = view
    assert not signer.illegal
