"""The answers of `why`, `stats`, `dump`, `budget` and a refused view agree with the view that was sent."""

import pytest

import quire
from quire import CompressionConfig, Context, IrreducibleFloor, ToolCall, View
from quire.windows.apps import Todo


def talk(budget: int = 2_000, turns: int = 12, *, enabled: bool = True) -> Context:
    ctx = quire.open("memory:", budget=budget, compression=CompressionConfig(enabled=enabled))
    ctx.system("Be careful.")
    for turn in range(turns):
        ctx.user(f"Question {turn} " + "word " * 40)
        ctx.assistant(f"Answer {turn} " + "词语 " * 30)
    return ctx


def agrees(ctx: Context, view: View, given: View | None = None) -> set[str]:
    """Check how `why` says that every page of the conversation is shown. Return all of its answers."""
    shown = {page.index: page.granularity for page in view.pages}
    pages = [item.id for item in ctx.items()]
    for index in pages:
        why = ctx.why(index, given)
        assert why.shown == shown.get(index, "no"), why
        assert why.rule
    return {ctx.why(index, given).shown for index in pages}


def test_every_page_is_explained_as_it_was_sent_or_as_it_is_now() -> None:
    ctx = talk(800, enabled=False)
    assert agrees(ctx, ctx.render()) >= {"no", "whole"}
    ctx.pages.pin("usr-1")
    ctx.pages.hide("usr-24")
    assert ctx.why("usr-24").shown == "line"
    ctx.render()
    assert ctx.why("usr-1").shown == "whole"
    ctx = talk(100_000)
    own, small = ctx.render(), ctx.render(max_tokens=700)
    assert agrees(ctx, own) == {"whole"}
    assert agrees(ctx, small, small) >= {"no", "whole"}
    with pytest.raises(quire.InvalidValue):
        ctx.why("usr-1", "view")  # type: ignore[arg-type]


def apply_call(ctx: Context, call: str) -> None:
    """Make a call that `why` names."""
    name, _, index = call.rstrip(")").partition("(")
    getattr(ctx.pages, name)(index.strip("'"))


@pytest.mark.parametrize("budget", [1_200, 3_000])
def test_the_call_that_why_names_shows_the_page(budget: int) -> None:
    ctx = quire.open("memory:", budget=budget)
    for size in (2, 10, 40, 120):
        ctx.pages.create_detail_page(f"Rule {size}", "", "Refunds need a receipt. " * size, "mem-0")
        ctx.agent.create_detail_page(f"Note {size}", "", "He wants a window seat. " * size, "mem-0")
    for turn in range(40):
        ctx.user(f"Question {turn} on an order? " * 4)
        ctx.render()
        ctx.assistant(f"Answer {turn}. " * 6)
    ctx.render()
    pages = [page for page in ctx.pages.list_pages() if isinstance(page, quire.DetailPage)]
    hidden = [page for page in pages if ctx.why(page.index).shown != "whole"]
    assert len(hidden) > 20
    for page in hidden[::10]:
        why = ctx.why(page.index)
        if why.call.startswith("detail("):
            assert page.tokens > 0.4 * budget
            continue
        with ctx.fork(f"copy of {page.index}") as copy:
            copy.render()
            apply_call(copy, copy.why(page.index).call)
            assert copy.render().tokens <= budget
            assert copy.why(page.index).shown == "whole", (page.index, why)


def test_who_decided_in_which_entry_is_told() -> None:
    ctx = talk(100_000)
    note = ctx.agent.create_detail_page("Seat", "", "12A", "mem-0")
    ctx.render()
    ctx.agent.hide_details(note)
    ctx.render()
    why = ctx.why(note)
    assert "agent" in why.rule
    assert str(ctx.seq) in why.rule
    assert why.call == f"expand({note!r})"


def test_the_error_for_a_floor_above_the_budget_names_what_helps() -> None:
    ctx = talk(2_000, turns=1)
    page = ctx.pages.create_detail_page("Policy", "", "Refunds only within 30 days. " * 300, "mem-0")
    ctx.pages.pin(page)
    with pytest.raises(IrreducibleFloor) as caught:
        ctx.render()
    assert [(hint.call, hint.page) for hint in caught.value.hints] == [("unpin", page)]
    assert dict(caught.value.parts)[page] > 2_000
    ctx.pages.unpin(page)
    with pytest.raises(IrreducibleFloor) as caught:
        ctx.render(reserve=1_980)
    assert caught.value.budget == 20 < caught.value.tokens
    for wrong in (0, -1, True):
        with pytest.raises(quire.InvalidValue):
            ctx.render(max_tokens=wrong)


# Statistics, the debug print, the budget report


def test_statistics_count_items_and_open_windows() -> None:
    ctx = quire.open("memory:")
    ctx.windows.register(Todo)
    ctx.system("你是 ContextUI 助手...")
    ctx.user("长" * 51)
    ctx.assistant(None, [ToolCall("a", "search"), ToolCall("b", "read_file")])
    for window in ("todo_12345", "temp_67890"):
        ctx.windows.open("todo", window_id=window)
    ctx.windows.close("temp_67890")
    stats = ctx.stats()
    assert (stats.total_items, stats.active_items, stats.obsolete_items, stats.window_items) == (5, 4, 1, 1)
    assert stats.estimated_tokens == sum(stats.segments.values())
    items = list(ctx.items())
    assert [item.type for item in items] == ["System", "User", "Assistant", "Window", "Window"]
    assert [item.seq for item in items] == sorted({item.seq for item in items})
    lines = ctx.dump().splitlines()
    assert lines[0] == f"[✓] [{items[0].seq:04d}] System: 你是 ContextUI 助手..."
    assert len(lines[1].partition("User: ")[2]) == 50
    assert lines[2].endswith("Assistant: search, read_file")
    assert lines[3] == f"[✓] [{items[3].seq:04d}] Window: todo_12345"
    assert lines[4] == f"[X] [{items[4].seq:04d}] Window: temp_67890"


@pytest.mark.parametrize(("reserve", "budget"), [(0, 2_000), (300, 2_000), (1_000, 12_000)])
def test_the_budget_report_says_what_the_view_takes(reserve: int, budget: int) -> None:
    ctx = talk(budget)
    view = ctx.render(budget_line=True, reserve=reserve)
    report = ctx.agent.budget()
    free = budget - reserve - view.tokens
    assert (report.budget, report.used, report.reserved, report.free) == (budget, view.tokens, reserve, free)
    assert dict(report.kinds) == view.by_kind()
    said = view.openai()[-1]["content"]
    assert all(f"{number:,}" in said for number in (view.tokens, budget, free))
    ctx.assistant("One more.")
    after = ctx.render(budget_line=True, reserve=reserve)
    assert after.shared_prefix == view.tokens  # the line stays, and is not repeated
    assert after.tail == ()
