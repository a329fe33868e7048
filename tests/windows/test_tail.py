"""The tail of a view: after the conversation, in no shared prefix, under no cache mark, and the first to be cut."""

from typing import Any

import pytest

import quire
from quire import Context, Message
from quire.model.tokens import EstimateCounter
from quire.view.parts import TokenCache
from quire.view.tail import Priority, Tail, TailPiece
from tests.windows.sample_apps import Counter


@pytest.fixture
def ctx() -> Context:
    opened = quire.open("memory:", budget=8_000, key="kestrel")
    opened.windows.register(Counter)
    opened.system("Be brief.")
    opened.user("hello")
    return opened


def test_fifty_updates_over_fifty_turns_cost_one_window_and_break_no_prefix(ctx: Context) -> None:
    ctx.windows.open("counter", padding=50)
    sizes = set()
    before = ctx.render()
    for n in range(50):
        ctx.assistant(f"answer {n}")
        ctx.windows.act("counter_1", "count")
        ctx.user(f"question {n}")
        view = ctx.render()
        (window,) = view.tail
        sizes.add(window.tokens)
        assert f"={n + 1}#" in window.messages[0].text
        assert sum("<Window" in message.text and message.role == "user" for message in view.messages) == 1
        steady = before.tokens - before.tail[0].tokens
        assert view.shared_prefix == steady  # everything but the tail
        assert view.bill().why.startswith("Only 2 new messages")
        before = view
    assert max(sizes) - min(sizes) <= 2


def test_windows_inline_are_part_of_the_prefix(ctx: Context) -> None:
    ctx.windows.open("counter")
    ctx.user("after")
    before = ctx.render(windows="inline")
    assert before.tail == ()
    ctx.user("more")
    assert ctx.render(windows="inline").shared_prefix == before.tokens
    ctx.windows.act("counter_1", "count")
    hello = sum(part.tokens for part in before.parts[:3])
    assert ctx.render(windows="inline").shared_prefix == hello


def test_what_was_sent_counts_the_tail_too(ctx: Context) -> None:
    ctx.windows.open("counter", padding=100)
    view = ctx.render()
    usage = ctx.report_usage({"prompt_tokens": view.tokens * 2, "completion_tokens": 1}, "some-model")
    assert usage.factor == pytest.approx(2, rel=0.01)


def calls(ctx: Context) -> None:
    ctx.assistant(None, [quire.ToolCall("c1", "look", "{}")])
    ctx.tool_result("c1", "seen")


@pytest.mark.parametrize("last", ["user", "assistant", "results", "waiting", "nothing"])
def test_a_tail_is_legal_after_whatever_comes_before_it(last: str) -> None:
    ctx = quire.open("memory:", budget=8_000)
    ctx.windows.register(Counter)
    ctx.windows.open("counter")
    ctx.windows.open("counter")
    if last != "nothing":
        ctx.user("hello")
    if last == "assistant":
        ctx.assistant("hi")
    if last == "results":
        calls(ctx)
    if last == "waiting":
        ctx.assistant(None, [quire.ToolCall("c1", "look", "{}")])
    for options in ({}, {"windows": "inline"}, {"include_system_prompt": False}):
        view = ctx.render(**options)
        assert quire.check_legal(view.openai(), "openai") == []
        assert quire.check_legal(list(view.anthropic(cache=True)), "anthropic") == []
        assert quire.check_legal(view.responses(), "responses") == []


def marks(blocks: list[dict[str, Any]]) -> list[str]:
    return [str(block.get("text") or block.get("content")) for block in blocks if "cache_control" in block]


@pytest.mark.parametrize("last", ["user", "assistant", "results"])
def test_anthropics_cache_marks_stand_before_the_tail(ctx: Context, last: str) -> None:
    if last != "user":
        ctx.assistant("hi")
    if last == "results":
        ctx.user("look")
        calls(ctx)
    without = ctx.render().anthropic(cache=True)
    ctx.windows.open("counter")
    request = ctx.render().anthropic(cache=True)
    found = [text for message in request for text in marks(message["content"]) if isinstance(message["content"], list)]
    expected = [text for message in without for text in marks(message["content"])]
    assert found == expected
    assert not any("<Window" in text for text in found)
    assert "<Window" in str(request[-1]["content"])
    assert [message["role"] for message in request][:-1] == [message["role"] for message in without][: len(request) - 1]


# The tail alone


def piece(key: int, priority: Priority, *, entry: int = 0, size: int = 400) -> TailPiece:
    text = f"{key} " + "word " * size
    return TailPiece(
        "window",
        key,
        f"win-{key}",
        text,
        entry=entry or key,
        priority=priority,
        clip=lambda most: text[:most] + "[…]",
        line=lambda: f"{key} left out",
    )


def tail(*pieces: TailPiece) -> Tail:
    return Tail(TokenCache(EstimateCounter().count), pieces)


def shown(made: Tail) -> dict[int, str]:
    return {part.pages[0].key: part.pages[0].granularity for part in made.parts()}


def test_the_unimportant_give_way_first_the_oldest_of_them_before_the_rest() -> None:
    pieces = [
        piece(1, Priority.IMPORTANT),
        piece(2, Priority.UNIMPORTANT, entry=9),
        piece(3, Priority.UNIMPORTANT),
        piece(4, Priority.PINNED),
        piece(5, Priority.OBSOLETE),
    ]
    one = tail(*pieces).tokens // 5
    steps = []
    for excess in range(0, one * 5, 40):
        made = tail(*pieces)
        made.shrink(excess)
        assert made.tokens <= max(tail(*pieces).tokens - excess, one + 10)
        steps.append(shown(made))
    order = [5, 3, 2, 1]
    rank = {"whole": 3, "clipped": 2, "line": 1}
    for step in steps:
        assert step[4] == "whole"
        left = [rank.get(step.get(key, ""), 0) for key in order]
        assert left[0] == 0 or left[1:] == [3, 3, 3]  # the obsolete one first
        assert left[3] == 3 or left[1:3] == [0, 0]  # the important one last
    assert steps[-1] == {4: "whole"}


def test_one_large_thing_is_clipped_before_it_goes() -> None:
    made = tail(piece(1, Priority.UNIMPORTANT, size=2_000))
    whole = made.tokens
    made.shrink(500)
    assert shown(made) == {1: "clipped"}
    assert whole - 1_000 < made.tokens <= whole - 500


def test_what_is_pinned_is_clipped_and_never_goes() -> None:
    made = tail(piece(1, Priority.PINNED, size=2_000), piece(2, Priority.PINNED, size=50))
    made.shrink(10_000)
    assert shown(made) == {1: "whole", 2: "whole"}
    assert made.removable_tokens() == 0
    made.clip_pinned(1_000)
    assert shown(made) == {1: "clipped", 2: "whole"}
    made.clip_pinned(10_000)
    assert shown(made) == {1: "line", 2: "line"}


def test_what_is_obsolete_goes_alone_if_asked_to() -> None:
    made = tail(piece(1, Priority.OBSOLETE), piece(2, Priority.UNIMPORTANT))
    made.drop_obsolete()
    assert shown(made) == {2: "whole"}
    assert made.tokens == sum(part.tokens for part in made.parts())


def test_a_piece_that_no_longer_holds_is_not_drawn(ctx: Context) -> None:
    from quire.view.options import CompressionConfig, RenderOptions
    from quire.view.renderer import Renderer

    renderer = Renderer(ctx.pages._engine, CompressionConfig(), lambda folded: None)
    holds = TailPiece("window", 1, "win-1", "holds", is_current=lambda state: True)
    gone = TailPiece("window", 2, "win-2", "gone", is_current=lambda state: False)
    view = renderer.render(RenderOptions(), [holds, gone])
    assert [part.messages for part in view.tail] == [(Message(role="user", content="holds"),)]


class CountingStorage(quire.MemoryStorage):
    """Counts the records that it returns."""

    records = 0

    def get(self, *args: Any, **options: Any) -> Any:
        self.records += 1
        return super().get(*args, **options)

    def members(self, *args: Any, **options: Any) -> Any:
        for record in super().members(*args, **options):
            self.records += 1
            yield record

    def scan(self, *args: Any, **options: Any) -> Any:
        for record in super().scan(*args, **options):
            self.records += 1
            yield record


def test_a_view_after_an_action_reads_nothing_of_the_windows_that_were_closed() -> None:
    storage = CountingStorage()
    ctx = quire.open(storage, budget=8_000)
    ctx.windows.register(Counter)
    ctx.user("hello")
    for n in range(200):
        ctx.windows.open("counter", window_id=f"w{n}")
        ctx.windows.close(f"w{n}")
    ctx.windows.open("counter", window_id="last")
    ctx.render()
    storage.records = 0
    for _ in range(5):
        ctx.windows.act("last", "count")
        ctx.render()
    assert storage.records < 50


def test_an_inline_window_stays_before_a_page_that_is_opened_later(ctx: Context) -> None:
    note = ctx.pages.create_detail_page("Route", "Notes", "Take the ferry at noon.", "mem-0")
    ctx.pages.hide(note)
    ctx.user("show me the counter")
    ctx.windows.open("counter")
    ctx.assistant("Here it is.")
    ctx.user("and the route")
    before = ctx.render(windows="inline")
    ctx.agent.expand_details(note)
    ctx.assistant("It is open.")
    view = ctx.render(windows="inline")
    assert view.shared_prefix == before.tokens
    kinds = [part.kind for part in view.parts if part.kind in ("window", "opened")]
    assert kinds == ["window", "opened"]
    ctx.windows.open("counter")
    kinds = [part.kind for part in ctx.render(windows="inline").parts if part.kind in ("window", "opened")]
    assert kinds == ["window", "opened", "window"]
