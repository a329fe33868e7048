"""The tail of a view: after the conversation, before its reply until the next fold, and the first to be cut."""

from typing import Any

import pytest

import quire
from quire import Context, EstimateCounter, Message
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


def windows_in(view: quire.View) -> list[str]:
    return [message.text for message in view.messages if message.role == "user" and "<Window" in message.text]


def test_fifty_updates_over_fifty_turns_stay_where_they_were_sent_and_break_no_prefix(ctx: Context) -> None:
    ctx.windows.open("counter", padding=50)
    before = ctx.render()
    folds = 0
    for n in range(50):
        ctx.assistant(f"answer {n}")
        ctx.windows.act("counter_1", "count")
        ctx.user(f"question {n}")
        view = ctx.render()
        (window,) = view.tail
        assert f"={n + 1}#" in window.messages[0].text
        assert windows_in(view)[-1] == window.messages[0].text
        if view.fold is None:
            assert view.shared_prefix == before.tokens  # the tail of the view before is in it
            assert view.bill().why.startswith("Only 2 new messages")
        else:
            folds += 1
            assert len(windows_in(view)) == 1  # the fold drops the earlier ones
        before = view
    assert folds


def test_a_window_that_did_not_change_is_not_sent_again(ctx: Context) -> None:
    ctx.windows.open("counter")
    (window,) = ctx.render().tail
    ctx.assistant("I see it.")
    ctx.user("go on")
    view = ctx.render()
    assert view.tail == ()
    assert windows_in(view) == [window.messages[0].text]
    assert ctx.why("win-1").shown == "whole"
    assert ctx.conversation.prelude(2) == [window.messages[0].text]
    ctx.windows.act("counter_1", "count")
    assert len(windows_in(ctx.render())) == 2


def test_a_window_that_was_closed_is_said_to_be_closed_once(ctx: Context) -> None:
    ctx.windows.open("counter")
    ctx.render()
    ctx.assistant("I see it.")
    ctx.windows.close("counter_1")
    ctx.user("close it")
    (closed,) = ctx.render().tail
    assert closed.messages[0].text == '<Window id="counter_1" key="kestrel" closed="true"/>'
    ctx.assistant("It is closed.")
    ctx.user("good")
    assert ctx.render().tail == ()


def test_another_handle_draws_the_same_preludes_and_closes_nothing(ctx: Context) -> None:
    ctx.windows.open("counter")
    ctx.render()
    ctx.assistant("I see it.")
    other = quire.open(ctx.pages.storage, budget=8_000)  # it has no apps
    assert other.render(preview=True).openai() == ctx.render(preview=True).openai()


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
        assert quire.check_legal(view.anthropic(cache=True), "anthropic") == []
        assert quire.check_legal(view.responses(), "responses") == []


def marks(blocks: list[dict[str, Any]]) -> list[str]:
    return [str(block.get("text") or block.get("content")) for block in blocks if "cache_control" in block]


@pytest.mark.parametrize("last", ["user", "assistant", "results"])
def test_anthropics_cache_marks_cover_the_tail_because_it_stays(ctx: Context, last: str) -> None:
    if last != "user":
        ctx.assistant("hi")
    if last == "results":
        ctx.user("look")
        calls(ctx)
    ctx.windows.open("counter")
    request = ctx.render().anthropic(cache=True)["messages"]
    lists = [message["content"] for message in request if isinstance(message["content"], list)]
    found = [text for blocks in lists for text in marks(blocks)]
    assert 0 < len(found) <= 3
    assert "<Window" in found[-1]
    ctx.assistant("seen")
    after = ctx.render().anthropic()["messages"]
    assert [message["role"] for message in after][: len(request)] == [message["role"] for message in request]


# The tail alone


def piece(key: int, priority: Priority, *, used: int = 0, size: int = 400) -> TailPiece:
    text = f"{key} " + "word " * size
    return TailPiece(
        "window",
        key,
        f"win-{key}",
        text,
        entry=key,
        used=used or key,
        priority=priority,
        clip=lambda most: text[:most] + "[…]",
        line=lambda: f"{key} is not shown",
        gather=lambda pieces: f"{len(pieces)} more",
    )


def tail(*pieces: TailPiece, share: int = 10**6) -> Tail:
    return Tail(TokenCache(EstimateCounter().count), pieces, share)


def shown(made: Tail) -> dict[int, str]:
    """Return how each piece is shown: the windows that are only counted are `more`."""
    assert made.tokens == sum(part.tokens for part in made.parts())
    rows = [(part, page) for part in made.parts() for page in part.pages]
    return {page.key: "more" if "more" in part.messages[0].text else page.granularity for part, page in rows}


def test_the_unimportant_give_way_first_the_least_recently_used_before_the_rest() -> None:
    pieces = [
        piece(1, Priority.IMPORTANT),
        piece(2, Priority.UNIMPORTANT, used=9),
        piece(3, Priority.UNIMPORTANT),
        piece(4, Priority.PINNED),
    ]
    one = tail(*pieces).tokens // 4
    steps = []
    for excess in range(0, one * 4, 40):
        made = tail(*pieces)
        made.shrink(excess)
        steps.append(shown(made))
    order = [3, 2, 1]
    lines = [[key for key in order if step[key] == "line"] for step in steps]
    assert sorted(map(len, lines)) == list(map(len, lines))
    assert {tuple(row) for row in lines} == {(), (3,), (3, 2), (3, 2, 1)}
    assert all(step[4] == "whole" for step in steps)


def test_the_entries_alone_give_the_same_lines_again() -> None:
    pieces = [piece(key, Priority.IMPORTANT if key % 3 == 0 else Priority.UNIMPORTANT) for key in range(1, 10)]
    for excess in range(0, 4_000, 300):
        made, again = tail(*pieces), tail(*pieces)
        made.shrink(excess)
        again.lay_out(made.last_lines)
        assert shown(again) == shown(made)
        used = tail(*pieces[:-1], piece(9, Priority.UNIMPORTANT, used=20))
        used.lay_out(made.last_lines)
        assert shown(used)[9] == "whole"  # it was used since


def test_windows_above_their_share_are_lines_and_then_one_line() -> None:
    pieces = [piece(key, Priority.UNIMPORTANT) for key in range(1, 61)]
    one, share = tail(pieces[0]).tokens, 2_000
    made = tail(*pieces, share=share)
    assert made.tokens <= share
    rows = [shown(made)[key] for key in range(1, 61)]
    assert rows == sorted(rows, key=["more", "line", "whole"].index)
    assert rows.count("whole") == (share - 400) // one
    assert rows.count("line") > 10
    assert len([part for part in made.parts() if len(part.pages) > 1]) == 1


def test_the_window_used_last_is_clipped_to_the_share() -> None:
    made = tail(piece(1, Priority.IMPORTANT), piece(2, Priority.UNIMPORTANT, size=2_000), share=900)
    assert shown(made) == {1: "line", 2: "clipped"}
    assert 800 < made.tokens <= 900
    made.shrink(10_000)
    assert shown(made) == {1: "line", 2: "line"}
    made.squeeze(made.tokens)
    assert shown(made) == {1: "more", 2: "more"}
    assert made.tokens == made.least_tokens()
    made.drop_lines()
    assert shown(made) == {}


def test_what_is_pinned_is_clipped_and_never_goes() -> None:
    pinned = piece(1, Priority.PINNED, size=2_000), piece(2, Priority.PINNED, size=50)
    made = tail(*pinned)
    made.squeeze(10_000)
    assert shown(made) == {1: "whole", 2: "whole"}
    assert made.least_tokens() == made.tokens
    assert not made.has_open_windows
    made.clip_pinned(1_000)
    assert shown(made) == {1: "clipped", 2: "whole"}
    made.clip_pinned(10_000)
    assert shown(made) == {1: "line", 2: "line"}
    shared = tail(*pinned, piece(3, Priority.IMPORTANT), share=500)
    assert shown(shared) == {1: "whole", 2: "whole", 3: "line"}


def test_what_is_obsolete_goes_alone_if_asked_to() -> None:
    made = tail(piece(1, Priority.OBSOLETE), piece(2, Priority.UNIMPORTANT))
    made.drop_obsolete()
    assert shown(made) == {2: "whole"}
    assert made.tokens == sum(part.tokens for part in made.parts())


def test_a_piece_that_no_longer_holds_is_not_drawn(ctx: Context) -> None:
    from quire import CompressionConfig, RenderOptions
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
