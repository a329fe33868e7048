"""A view that is updated change by change equals a view that is drawn from scratch."""

import gc
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

import quire
from quire import (
    CompressionConfig,
    Conflict,
    Context,
    InvalidOperation,
    InvalidValue,
    MemoryStorage,
    NoSuchPage,
    PermissionDenied,
    ToolCall,
)
from quire.view.parts import ViewPart
from tests.marks import broad
from tests.shallow_stack import shallow_stack

Step = Callable[[Context, random.Random, int], object]


def some(ctx: Context, chance: random.Random) -> list[int]:
    """Return a few message indices."""
    count = max(len(ctx.messages(all=True)), 1)
    return [chance.randrange(count) for _ in range(chance.randint(1, 3))]


def page(chance: random.Random, segment: str = "usr", most: int = 30) -> str:
    return f"{segment}-{chance.randint(1, most)}"


def answer(ctx: Context, chance: random.Random, number: int) -> None:
    waiting = ctx.pending_calls()
    if waiting:
        ctx.tool_result(chance.choice(waiting).id, f"result {number}")


def try_out(ctx: Context, _chance: random.Random, _number: int) -> None:
    ctx.conversation.batch_start()
    ctx.user("in the batch")
    ctx.conversation.batch_end(0)


def said(role: str, number: int) -> dict[str, str]:
    return {"role": role, "content": f"{role} {number}"}


def try_in_a_block(ctx: Context, chance: random.Random, number: int) -> None:
    with ctx.temporary():
        if chance.random() < 0.5:
            ctx.user(f"only now {number}")
        ctx.render()


def note(chance: random.Random) -> str:
    return chance.choice(["mem-0", page(chance, "mem", 12)])


def notes(chance: random.Random) -> list[str]:
    return sorted({page(chance, "mem", 12) for _ in range(2)})


def text(number: int, chance: random.Random) -> str:
    return f"agent {number} " * chance.randint(1, 10)


STEPS: list[Step] = [
    lambda ctx, chance, n: ctx.user(f"said {n} " + "word " * chance.randint(0, 60)),
    lambda ctx, chance, n: ctx.assistant(f"answered {n} " + "yes " * chance.randint(0, 60)),
    lambda ctx, chance, n: ctx.assistant(None, tool_calls=[ToolCall(f"c{n}", "f"), ToolCall(f"d{n}", "f")]),
    answer,
    try_out,
    lambda ctx, chance, n: ctx.add(said("system", n)),
    lambda ctx, chance, n: ctx.system(f"prompt {n}"),
    lambda ctx, chance, n: ctx.conversation.delete(some(ctx, chance)),
    lambda ctx, chance, n: ctx.conversation.replace(some(ctx, chance)[:1], said("user", n)),
    lambda ctx, chance, n: ctx.conversation.compress(some(ctx, chance)),
    lambda ctx, chance, n: ctx.conversation.insert(said("user", n), at=some(ctx, chance)[0]),
    lambda ctx, chance, n: ctx.pages.create_detail_page(f"note {n}", "", "text " * chance.randint(1, 20), "mem-0"),
    lambda ctx, chance, n: ctx.pages.set_detail("mem-1", f"other {n}"),
    lambda ctx, chance, n: ctx.pages.hide(page(chance, "mem", 4)),
    lambda ctx, chance, n: ctx.pages.hide(page(chance)),
    lambda ctx, chance, n: ctx.pages.expand(page(chance)),
    lambda ctx, chance, n: ctx.pages.archive(page(chance)),
    lambda ctx, chance, n: ctx.pages.restore(page(chance)),
    lambda ctx, chance, n: ctx.pages.archive(page(chance), cold=True),
    lambda ctx, chance, n: ctx.pages.recall(page(chance)),
    lambda ctx, chance, n: ctx.pages.move_page(page(chance), "usr-0", before=page(chance)),
    lambda ctx, chance, n: ctx.undo(chance.randint(1, ctx.seq)),
    lambda ctx, chance, n: ctx.rollback(max(1, ctx.seq - chance.randint(0, 4))),
]

WITH_AN_AGENT: list[Step] = [
    try_in_a_block,
    lambda ctx, chance, n: ctx.agent.expand_details(page(chance)),
    lambda ctx, chance, n: ctx.agent.expand_details(page(chance, "mem", 12)),
    lambda ctx, chance, n: ctx.agent.hide_details(page(chance)),
    lambda ctx, chance, n: ctx.agent.hide_details(page(chance, "mem", 12)),
    lambda ctx, chance, n: ctx.agent.create_detail_page(f"a {n}", "", text(n, chance), note(chance)),
    lambda ctx, chance, n: ctx.agent.create_contents_page(f"f {n}", "", "mem-0", notes(chance)),
    lambda ctx, chance, n: ctx.agent.move_page(page(chance, "mem", 12), note(chance)),
    lambda ctx, chance, n: ctx.agent.set_detail(page(chance, "mem", 12), text(n, chance)),
    lambda ctx, chance, n: ctx.agent.remove_page(page(chance, "mem", 12)),
    lambda ctx, chance, n: ctx.pages.create_contents_page(f"d {n}", "", "mem-0", notes(chance)),
    lambda ctx, chance, n: ctx.pages.create_detail_page(f"n {n}", "", "text", chance.choice(["mem-0", "usr-0"])),
    lambda ctx, chance, n: ctx.pages.move_page(page(chance, "mem", 12), note(chance)),
    lambda ctx, chance, n: ctx.pages.set_detail(page(chance, "mem", 12), f"other {n}"),
    lambda ctx, chance, n: ctx.pages.remove_page(page(chance, "mem", 12)),
    lambda ctx, chance, n: ctx.pages.expand(page(chance, "mem", 12)),
    lambda ctx, chance, n: ctx.pages.archive(page(chance, "mem", 12), cold=True),
    lambda ctx, chance, n: ctx.pages.recall(page(chance, "mem", 12)),
    *STEPS,
]


@pytest.mark.parametrize("steps", [STEPS, WITH_AN_AGENT], ids=["developer", "agent"])
@pytest.mark.parametrize("seed", [*range(4), *broad(*range(4, 8))])
def test_following_changes_is_as_good_as_drawing_anew(seed: int, steps: list[Step]) -> None:
    chance = random.Random(seed)
    storage = MemoryStorage()
    ctx = quire.open(storage, "c", budget=900 if seed % 2 else 100_000)
    for number in range(120):
        with suppress(Conflict, InvalidOperation, InvalidValue, NoSuchPage, PermissionDenied):
            chance.choice(steps)(ctx, chance, number)
        view = ctx.render()
        assert view.tokens <= view.budget
        if any(message.role != "system" for message in view.messages):
            assert quire.check_legal(view.anthropic(), "anthropic") == []
            assert quire.check_legal(view.openai(), "openai") == []
        fresh = quire.open(storage, "c", budget=ctx.budget).render()
        assert fresh.openai() == view.openai(), number
        assert fresh.tokens == view.tokens
    assert ctx.check() == []


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


def parts_in_memory() -> int:
    gc.collect()
    return sum(type(found) is ViewPart for found in gc.get_objects())


def test_the_parts_of_folded_pages_are_dropped() -> None:
    before = parts_in_memory()
    ctx = quire.open("memory:", budget=4_000, counter=quire.EstimateCounter())
    for number in range(600):
        ctx.add({"role": "assistant" if number % 2 else "user", "content": f"Order {number}: move the pump. " * 8})
        view = ctx.render()
    shown = len(view.parts)
    assert 20 < shown < 200
    assert parts_in_memory() - before <= 2 * shown, "parts of pages that no view shows are kept"
