"""An agent's change keeps the prefix until the next fold; a developer's change appears at once."""

from collections.abc import Callable

import pytest

import quire
from quire import Context, Permission, Visibility
from quire.core.plan import Plan
from quire.system.lifecycle import archive, expand, hide
from quire.system.tree import create_detail_page, move_page, remove_page, update_page
from tests.view_laws.laws import check_shown


def small_context() -> Context:
    ctx = quire.open("memory:", budget=2_000)
    ctx.system("Prompt.")
    ctx.pages.create_detail_page("Seat", "By the window", "He wants a seat by the window.", "mem-0")
    for turn in range(6):
        ctx.user(f"Question {turn}")
        ctx.assistant(f"Answer {turn}")
    ctx.pages.hide("usr-3")
    return ctx


def as_agent(ctx: Context, plan_it: Callable[[Plan], object], opened: str | None = None) -> None:
    """Make a change as an agent: its effect on the view waits for the next fold."""

    def planner(plan: Plan) -> None:
        plan_it(plan)
        plan.defer(*([plan.require_page(opened).key] if opened else []))

    ctx.pages._engine.run("agent", "expand_details" if opened else "agent", planner)


CHANGES: dict[str, Callable[[Plan], object]] = {
    "hide": lambda plan: hide(plan, "usr-1"),
    "archive": lambda plan: archive(plan, "usr-2"),
    "write": lambda plan: create_detail_page(plan, "Meal", "No fish", "He eats no fish.", "mem-0"),
    "edit": lambda plan: update_page(plan, "mem-1", name="Seating"),
    "move": lambda plan: move_page(plan, "mem-1", "win-0"),
    "remove": lambda plan: remove_page(plan, "mem-1"),
    "open": lambda plan: expand(plan, "usr-3"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_agents_change_waits_for_the_next_fold(what: str) -> None:
    ctx = small_context()
    before = ctx.render()
    as_agent(ctx, CHANGES[what])
    assert ctx.render().openai() == before.openai()
    assert ctx.render().shared_prefix == before.tokens
    again = quire.open(ctx.pages.storage, ctx.name, budget=2_000)
    assert again.render().openai() == before.openai()
    ctx.user("And now? " + "word " * 1_900)
    view = ctx.render()
    assert view.fold is not None
    check_shown(ctx, view, 2_000)
    fresh = ctx.fork("other").render()
    assert [page.index for page in fresh.pages] == [page.index for page in view.pages]
    assert not ctx.pages._engine.state.deferred_changes()
    assert ctx.check() == []


def test_an_opened_page_stands_once_after_the_exchange_that_opened_it() -> None:
    ctx = small_context()
    before = ctx.render().openai()
    as_agent(ctx, CHANGES["open"], opened="usr-3")
    opened = ctx.render().openai()
    assert opened[:-1] == before
    assert "Opened [usr-3]" in opened[-1]["content"]
    assert "Question 1" in opened[-1]["content"]
    assert ctx.render().openai() == opened
    ctx.assistant("I see.")
    ctx.user("Go on.")
    later = ctx.render()
    assert later.openai()[: len(opened)] == opened
    assert quire.open(ctx.pages.storage, ctx.name, budget=2_000).render().openai() == later.openai()
    assert ctx.why("usr-3").shown == "whole"
    check_shown(ctx, later, 2_000)


def test_a_fold_keeps_what_was_just_opened() -> None:
    ctx = quire.open("memory:", budget=1_200)
    ctx.system("Prompt.")
    for turn in range(60):
        ctx.user(f"Question {turn} " + "word " * 30)
        ctx.assistant(f"Answer {turn} " + "word " * 30)
        ctx.render()
    index = [page for page in ctx.render().pages if page.granularity == "line"][-1].index
    while isinstance(ctx.pages.get_page(index), quire.ContentsPage):
        index = ctx.pages.children(index)[0].index
    as_agent(ctx, lambda plan: expand(plan, index), opened=index)
    words = ctx.pages.detail(index).split(": ", 1)[1]
    assert words in str(ctx.render().messages[-1].content)
    view = ctx.render()
    while view.fold is None:
        ctx.user("word " * 200)
        view = ctx.render()
    assert any(words in str(message.content) for message in view.messages)
    check_shown(ctx, view, 1_200)


def test_a_developers_change_of_the_same_page_shows_at_once() -> None:
    ctx = small_context()
    as_agent(ctx, CHANGES["edit"])
    ctx.pages.update_page("mem-1", description="By the aisle")
    assert "Seating" in str(ctx.render().openai())
    as_agent(ctx, CHANGES["hide"])
    assert ctx.pages.get_page("usr-1").visibility is Visibility.HIDDEN
    ctx.undo(ctx.seq)
    assert ctx.pages.get_page("usr-1").visibility is Visibility.EXPANDED
    assert not ctx.pages._engine.state.deferred_changes()


@pytest.mark.parametrize("what", CHANGES)
def test_a_rollback_forgets_what_waited(what: str) -> None:
    ctx = small_context()
    before = ctx.render().openai()
    seq = ctx.seq
    as_agent(ctx, CHANGES[what], opened="usr-3" if what == "open" else None)
    ctx.rollback(seq)
    assert ctx.render().openai() == before
    assert ctx.check() == []


def opened(ctx: Context, index: str) -> None:
    ctx.pages.hide(index)
    ctx.render()
    ctx.agent.expand_details(index)


def test_an_opened_page_goes_when_its_segment_becomes_private() -> None:
    ctx = small_context()
    opened(ctx, "mem-1")
    assert "a seat by the window." in str(ctx.render().openai())
    ctx.pages.set_segment_permission("mem", Permission.PRIVATE)
    assert "a seat by the window." not in str(ctx.render().openai())
    ctx.pages.set_segment_permission("mem", Permission.READ_WRITE)
    assert "a seat by the window." in str(ctx.render().openai())


@pytest.mark.parametrize("how", ["changed", "removed", "archived"])
def test_a_developers_change_inside_an_opened_folder_shows_at_once(how: str) -> None:
    ctx = small_context()
    folder = ctx.pages.create_contents_page("Trip", "", "mem-0")
    page = ctx.pages.create_detail_page("Hotel", "", "By the sea.", folder)
    opened(ctx, folder)
    assert "By the sea." in str(ctx.render().openai())
    if how == "changed":
        ctx.pages.set_detail(page, "In the hills.")
    elif how == "removed":
        ctx.pages.remove_page(page)
    else:
        ctx.pages.archive(page, cold=True)
    view = ctx.render()
    assert "By the sea." not in str(view.openai())
    assert quire.open(ctx.pages.storage, ctx.name, budget=2_000).render().openai() == view.openai()


def test_an_opened_page_keeps_its_place_where_nothing_or_only_a_note_stood_before_it() -> None:
    for begin in (lambda ctx: None, lambda ctx: ctx.pages.create_detail_page("Note", "", "Read this.", "usr-0")):
        ctx = quire.open("memory:", budget=2_000)
        begin(ctx)
        ctx.pages.create_detail_page("Seat", "By the window", "He wants a seat by the window.", "mem-0")
        ctx.pages.hide("mem-1")
        before = ctx.render()
        ctx.agent.expand_details("mem-1")
        view = ctx.render()
        assert view.shared_prefix == before.tokens
        ctx.user("Hello")
        assert ctx.render().shared_prefix == view.tokens
        again = quire.open(ctx.pages.storage, ctx.name, budget=2_000)
        assert again.render().openai() == ctx.render().openai()


def test_a_developers_change_in_an_agents_new_folder_shows_at_once() -> None:
    ctx = small_context()
    ctx.render()
    folder = ctx.agent.create_contents_page("Trip", "", "mem-0", ["mem-1"])
    assert f"[{folder}]" not in str(ctx.render().openai())
    ctx.pages.set_detail("mem-1", "He wants the aisle.")
    assert "He wants the aisle." in str(ctx.render().openai())
    ctx.agent.expand_details("mem-1")  # no problem was found


def test_what_an_agent_took_out_of_a_folder_is_shown_when_a_developer_removes_that() -> None:
    ctx = small_context()
    folder = ctx.pages.create_contents_page("Trip", "", "mem-0", ["mem-1"])
    ctx.render()
    ctx.agent.move_page("mem-1", "mem-0")
    ctx.pages.remove_page(folder)
    assert "He wants a seat by the window." in str(ctx.render().openai())


CALLS = [
    ("hide_details", {}),
    ("archive", {"cold": True}),
    ("write_page", {"text": "Of the agent."}),
    ("move_page", {"folder": "win-0"}),
    ("remove_page", {}),
]


@pytest.mark.parametrize(("tool", "more"), CALLS)
@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("turns", [2, 40])
def test_a_developers_change_is_shown_if_an_agent_changes_the_page_before_the_next_view(
    tool: str, more: dict[str, object], *, is_new: bool, turns: int
) -> None:
    ctx = quire.open("memory:", budget=1_500)
    ctx.pages.create_detail_page("Seat", "", "By the window.", "mem-0")
    for _ in range(turns):
        ctx.user("word " * 60)
        ctx.render()

    def change(number: int) -> str:
        if is_new:
            return ctx.pages.create_detail_page("Meal", "", f"No fish {number}.", "mem-0")
        ctx.pages.set_detail("mem-1", f"No fish {number}.")
        return "mem-1"

    page = change(1)
    ctx.tools.call(tool, {"page": page, **more})  # before the view
    first = ctx.render().openai()
    assert "No fish 1." in str(first)
    assert quire.open(ctx.pages.storage).render(preview=True).openai() == first
    if is_new or tool == "hide_details":
        page = change(2)
        shown = ctx.render().openai()
        ctx.tools.call(tool, {"page": page, **more})  # after it
        assert ctx.render().openai()[: len(shown)] == shown
        assert quire.open(ctx.pages.storage).render(preview=True).openai() == shown
