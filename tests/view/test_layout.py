"""Layout outside the conversation: gathered lines, capacities, what comes back, and how everything is reached."""

import re
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

import quire
from quire import Context, check_legal
from quire.core.reader import Reader
from quire.storage.base import LAYOUT, SHEET
from quire.storage.memory import MemoryStorage
from quire.view import segments
from quire.view.draw import PartBuilder
from quire.view.parts import ViewPart
from quire.view.renderer import Renderer
from quire.view.segments import draw_segment
from quire.windows.apps import Todo
from tests.marks import broad

RUN = re.compile(r"^\s*\[([^\s\]]+)")
MOST_STEPS = 6


def add_notes(ctx: Context, count: int, parent: str = "mem-0") -> None:
    for number in range(count):
        ctx.pages.create_detail_page(f"note {number} on pumps", f"about {number}", f"Text of note {number}.", parent)


def check_view(ctx: Context, budget: int) -> quire.View:
    view = ctx.render()
    assert view.tokens <= budget
    assert check_legal(view.openai(), "openai") == []
    return view


def steps_to(ctx: Context, wanted: str) -> int:
    """Return how many calls of `read_page` an agent needs from the table of contents to a page."""
    index, steps = "", 1
    while steps <= MOST_STEPS:
        answer = ctx.tools.call("read_page", {"page": index} if index else {})
        shown = [match[1] for line in answer.splitlines() if (match := RUN.match(line))]
        if wanted in shown:
            return steps + 1
        index = [one for one in shown if _holds(ctx, one, wanted)][-1]  # a run below its segment is nearer
        steps += 1
    raise AssertionError(f"{wanted} is not reached in {MOST_STEPS} steps")


def _holds(ctx: Context, index: str, wanted: str) -> bool:
    """Return whether a run or a folder in a list contains a page. Notes are in the order of their numbers."""
    above = [wanted, *(page.index for page in ctx.pages.ancestors(wanted))]
    first, span, last = index.partition("…")
    if not span:
        return first in above
    ends = [one.rpartition("-") for one in (first, last)]
    for segment, _, number in (page.rpartition("-") for page in above):
        if ends[0][0] == segment == ends[1][0] and int(ends[0][2]) <= int(number) <= int(ends[1][2]):
            return True
    order = [f"{one.id}-0" for one in ctx.pages.list_segments()]
    return first in order and last in order and order.index(first) <= order.index(above[-1]) <= order.index(last)


def check_reach(ctx: Context, pages: Iterable[str]) -> None:
    steps = {}
    for page in pages:
        ctx.user(f"Read {page}.")  # the calls of one turn are limited
        steps[page] = steps_to(ctx, page)
    assert max(steps.values()) <= MOST_STEPS


BUDGETS = pytest.mark.parametrize("budget", [2_000, *broad(8_000, 128_000)])


@BUDGETS
def test_any_number_of_notes_fits_and_every_one_is_reached(budget: int, request: pytest.FixtureRequest) -> None:
    count, tries = (100_000, 200) if request.config.getoption("--long") else (1_500, 10)
    ctx = quire.open("memory:", budget=budget)
    ctx.system("You are careful.")
    add_notes(ctx, count)
    ctx.user("Which pump leaks?")
    check_view(ctx, budget)
    random = Random(20)
    check_reach(ctx, (f"mem-{number}" for number in {1, count, *random.sample(range(1, count), tries)}))
    assert ctx.check() == []


@BUDGETS
def test_folders_gather(budget: int, request: pytest.FixtureRequest) -> None:
    folders, inside, tries = (1_000, 50, 200) if request.config.getoption("--long") else (60, 20, 10)
    ctx = quire.open("memory:", budget=budget)
    for number in range(folders):
        add_notes(ctx, inside, ctx.pages.create_contents_page(f"folder {number}", "", "mem-0"))
    ctx.user("Hello")
    check_view(ctx, budget)
    last = folders * (inside + 1)
    check_reach(ctx, (f"mem-{number}" for number in {2, last, *Random(20).sample(range(1, last), tries)}))


@BUDGETS
def test_segments_gather(budget: int, request: pytest.FixtureRequest) -> None:
    count, tries = (300, 100) if request.config.getoption("--long") else (60, 10)
    ctx = quire.open("memory:", budget=budget)
    for number in range(count):
        ctx.pages.add_segment(quire.Segment(id=f"s{number}", name=f"Segment {number}"))
        add_notes(ctx, 3, f"s{number}-0")
    ctx.user("Hello")
    check_view(ctx, budget)
    check_reach(ctx, (f"s{number}-2" for number in {0, count - 1, *Random(20).sample(range(count), tries)}))


def test_an_agent_that_writes_many_notes_a_turn_goes_on() -> None:
    ctx = quire.open("memory:", budget=4_000)
    for turn in range(20):
        ctx.user(f"Turn {turn}")
        for number in range(25):
            ctx.tools.call("write_page", {"name": f"note {turn} {number}", "text": "A few words about pumps. " * 3})
        check_view(ctx, 4_000)
        ctx.assistant("Done.")
    assert ctx.check() == []


def test_a_policy_is_not_pushed_out_and_comes_back() -> None:
    ctx = quire.open(MemoryStorage(), budget=2_000)
    ctx.pages.add_segment(quire.Segment(id="policy", name="Policy", permission=quire.Permission.READ_ONLY))
    page = ctx.pages.create_detail_page("Refunds", "", "No refund after 30 days. " * 20, "policy-0")
    for turn in range(30):
        ctx.user(f"Turn {turn}: " + "word " * 30)
        ctx.tools.call("write_page", {"name": f"note {turn}", "text": "A few words about pumps. " * 9})
        ctx.assistant("Done.")
        view = check_view(ctx, 2_000)
        assert (page, "whole") in [(shown.index, shown.granularity) for shown in view.pages]
    assert ctx.pages.get_page("mem-1").visibility is quire.Visibility.EXPANDED  # the layout is no state of pages


def test_opening_a_folder_of_many_hidden_pages_is_refused_or_fits() -> None:
    ctx = quire.open("memory:", budget=3_000)
    folder = ctx.pages.create_contents_page("many", "", "mem-0")
    for number in range(300):
        ctx.pages.hide(ctx.pages.create_detail_page(f"page {number}", "", "text", folder))
    ctx.pages.hide(folder)
    ctx.user("Hello")
    check_view(ctx, 3_000)
    assert "Cannot open" in ctx.tools.call("expand_details", {"page": folder})
    check_view(ctx, 3_000)


def test_expanding_a_page_that_is_a_line_opens_it() -> None:
    ctx = quire.open("memory:", budget=2_000)
    add_notes(ctx, 300)
    ctx.user("Hello")
    assert "mem-5" not in [page.index for page in check_view(ctx, 2_000).pages]
    ctx.pages.expand("mem-5")
    shown = {page.index: page.granularity for page in check_view(ctx, 2_000).pages}
    assert shown["mem-5"] == "whole"
    ctx.agent.expand_details("mem-7")
    shown = {page.index: page.granularity for page in check_view(ctx, 2_000).pages}
    assert shown["mem-7"] == "whole"


@pytest.mark.parametrize("kind", ["note", "page", "folder"])
def test_a_page_that_an_agent_opened_is_shown_also_if_the_next_view_folds(kind: str) -> None:
    ctx = quire.open("memory:", budget=2_000)
    words, author = "a few words about pumps and valves. ", ctx.agent if kind == "note" else ctx.pages
    parent = ctx.pages.create_contents_page("Pumps", "", "mem-0") if kind == "folder" else "mem-0"
    opened = author.create_detail_page("Large", "", "Kestrel: " + words * 45, parent)
    for number in range(45):
        ctx.pages.create_detail_page(f"Rule {number}", "", f"Rule {number}: " + words * 11, "mem-0")
    folds = 0
    for turn in range(24):
        ctx.user(f"Question {turn}: " + words * 4)
        before = whole_pages(check_view(ctx, 2_000))
        ctx.assistant(f"Answer {turn}: " + words * 3)
        fork = ctx.fork(f"fork {turn}")
        fork.tools.call("expand_details", {"page": parent if kind == "folder" else opened})
        fork.user("Go on. " + words * 2)
        view = check_view(fork, 2_000)
        assert opened in whole_pages(view)
        if view.fold is not None:
            folds += 1
            assert whole_pages(view) >= before  # an opened page displaces no page of a developer
    assert folds


def whole_pages(view: quire.View) -> set[str]:
    return {page.index for page in view.pages if page.granularity == "whole" and page.index.startswith("mem")}


def test_undo_of_an_opened_line_says_why_it_is_refused() -> None:
    ctx = quire.open("memory:", budget=2_000)
    add_notes(ctx, 300)
    ctx.user("Hello")
    check_view(ctx, 2_000)
    ctx.pages.expand("mem-5")
    opened, before = ctx.seq, check_view(ctx, 2_000).openai()
    with pytest.raises(quire.InvalidOperation, match=r"it only opened 'mem-5'.*hide\('mem-5'\)"):
        ctx.undo(opened)
    assert check_view(ctx, 2_000).openai() == before


def test_an_edit_draws_only_its_own_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = quire.open("memory:", budget=8_000)
    for number in range(20):
        ctx.pages.add_segment(quire.Segment(id=f"s{number}", name=f"Segment {number}"))
        add_notes(ctx, 3, f"s{number}-0")
    ctx.user("Hello")
    check_view(ctx, 8_000)
    drawn: list[int] = []

    def draw(reader: Reader, builder: PartBuilder, number: int, most: int | None = None) -> ViewPart | None:
        drawn.append(number)
        return draw_segment(reader, builder, number, most)

    monkeypatch.setattr(segments, "draw_segment", draw)
    ctx.pages.set_detail("s7-2", "Another text.")
    view = check_view(ctx, 8_000)
    assert "Another text." in str(view.openai())
    assert len(drawn) == 1
    assert quire.open(ctx.pages.storage).render(preview=True).openai() == view.openai()


def test_the_line_of_gathered_segments_counts_for_no_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = quire.open("memory:", budget=2_000)
    for number in range(40):
        ctx.pages.add_segment(quire.Segment(id=f"s{number}", name=f"Segment {number}", max_capacity=20))
        add_notes(ctx, 3, f"s{number}-0")
    ctx.user("Hello")
    assert "More segments" in str(check_view(ctx, 2_000).openai())
    plans: list[object] = []
    monkeypatch.setattr(Renderer, "_fitter", lambda *arguments: plans.append(arguments))
    for turn in range(3):  # no view plans a fold again
        ctx.user(f"Turn {turn}")
        check_view(ctx, 2_000)
    assert not plans


def test_a_capacity_bounds_everything_that_a_segment_shows() -> None:
    ctx = quire.open("memory:", budget=20_000)
    ctx.pages.update_segment("usr", max_capacity=500)
    ctx.pages.update_segment("mem", max_capacity=300)
    add_notes(ctx, 100)
    for turn in range(30):
        ctx.user(f"Question {turn}: " + "word " * 40)
        view = check_view(ctx, 20_000)
        parts = [part for part in view.parts if part.pages]
        assert sum(p.tokens for p in parts if p.pages[0].index.startswith("usr")) <= 500
        assert sum(p.tokens for p in parts if p.pages[0].index.startswith("mem")) <= 300
        ctx.assistant("Answer " + "word " * 40)


def test_a_developers_new_pages_come_after_the_newest_message() -> None:
    ctx = quire.open("memory:", budget=2_000)
    add_notes(ctx, 200)
    ctx.user("Hello")
    before = check_view(ctx, 2_000)
    page = ctx.pages.create_detail_page("fresh", "", "A fresh text.", "mem-0")
    view = check_view(ctx, 2_000)
    assert view.openai()[: len(before.openai())] == before.openai()
    assert "A fresh text." in view.openai()[-1]["content"]
    again = quire.open(ctx.pages.storage)
    assert again.render(preview=True).openai() == view.openai()
    for number in range(20):
        ctx.pages.create_detail_page(f"more {number}", "", "More text.", "mem-0")
    last = check_view(ctx, 2_000).openai()[-1]["content"]
    assert f"{page}…" in last or "…" in last


def test_layouts_are_derived(tmp_path: Path) -> None:
    ctx = quire.open(tmp_path / "a.quire", budget=2_000)
    add_notes(ctx, 200)
    ctx.user("Hello")
    view = check_view(ctx, 2_000)
    storage = ctx.pages.storage
    assert list(storage.scan("default", LAYOUT))
    assert list(storage.scan("default", SHEET))
    again = quire.open(tmp_path / "a.quire")
    assert again.render(preview=True).openai() == view.openai()
    ctx.pages.purge("mem-200")
    assert not any(b"note 199" in record.value for record in storage.scan("default", LAYOUT))
    check_view(ctx, 2_000)
    assert ctx.check() == []


def test_undo_of_folds_works_in_any_order() -> None:
    ctx = quire.open("memory:", budget=1_500)
    add_notes(ctx, 40)
    for turn in range(70):
        ctx.user(f"Turn {turn}: " + "word " * 40)
        ctx.assistant("Done.")
        check_view(ctx, 1_500)
    folds = [entry for entry in ctx.history() if entry.operation == "fold"]
    assert len(folds) > 2
    assert ctx.undo(folds[-1].seq)
    check_view(ctx, 1_500)
    assert ctx.check() == []


def test_why_names_the_renderer_and_the_entry() -> None:
    ctx = quire.open("memory:", budget=2_000)
    add_notes(ctx, 300)
    ctx.user("Hello")
    check_view(ctx, 2_000)
    fold = next(entry for entry in ctx.history() if entry.operation == "fold")
    why = ctx.why("mem-5")
    assert (why.shown, why.by, why.entry) == ("no", "renderer", fold.seq)
    assert why.call == "expand('mem-5')"


def test_a_pinned_window_is_shown_only_as_a_window() -> None:
    ctx = quire.open("memory:", budget=1_500)
    ctx.windows.register(Todo)
    ctx.windows.open("todo", pinned=True)
    for number in range(40):
        ctx.user(f"Question {number} on pumps. " * 6)
        ctx.assistant(f"Answer {number} on pumps. " * 6)
        view = check_view(ctx, 1_500)
    assert any(entry.actor == "renderer" for entry in ctx.history())
    shown = [page.index for part in view.parts if part.kind == "segment" for page in part.pages]
    assert not [index for index in shown if index.startswith("win-")]


@pytest.mark.parametrize("capacity", [1, 2, 3, 7])
def test_a_capacity_below_one_line_shows_nothing(capacity: int) -> None:
    ctx = quire.open("memory:", budget=4_000)
    ctx.pages.update_segment("mem", max_capacity=capacity)
    add_notes(ctx, 3)
    ctx.user("Hello")
    assert "segment" not in check_view(ctx, 4_000).by_kind()


def test_a_segment_is_shown_if_its_lines_fit_without_whole_pages() -> None:
    ctx = quire.open("memory:", budget=8_000)
    ctx.pages.add_segment(quire.Segment(id="d", name="D", max_capacity=112))
    name = "龘靐齉爩鱻麤龗灪吁龖厵滟爨癵籱饢驫鲡鹂鸾麣" * 2
    _, short, _ = [ctx.pages.create_detail_page(title, "", "word " * 300, "d-0") for title in (name, "x", name)]
    ctx.pages.set_detail(short, "z")  # it fits a quarter of the capacity, but not beside the lines
    ctx.user("Hello")
    assert 0 < shown_of(check_view(ctx, 8_000), "d") <= 112


def shown_of(view: quire.View, segment: str) -> int:
    return sum(part.tokens for part in view.parts if part.pages and part.pages[0].index.startswith(f"{segment}-"))


def test_a_lower_capacity_holds_from_the_next_view_on() -> None:
    ctx = quire.open("memory:", budget=4_000)
    add_notes(ctx, 20)
    for turn in range(60):
        ctx.user(f"Question {turn}: " + "word " * 100)
        view = check_view(ctx, 4_000)
    assert shown_of(view, "mem") > 150
    ctx.pages.update_segment("mem", max_capacity=150)
    assert 0 < shown_of(check_view(ctx, 4_000), "mem") <= 150


def test_a_larger_budget_opens_no_more_than_the_capacity_of_the_conversation() -> None:
    ctx = quire.open("memory:", budget=2_000)
    ctx.pages.update_segment("usr", max_capacity=900)
    for turn in range(30):
        ctx.user(f"Question {turn}: " + "word " * 50)
        check_view(ctx, 2_000)
    ctx.budget = 12_000
    folded = ctx.seq
    assert shown_of(check_view(ctx, 12_000), "usr") <= 900
    assert shown_of(ctx.render(max_tokens=20_000), "usr") <= 900
    check_view(ctx, 12_000)
    assert ctx.seq - folded <= 1  # nothing is opened that the next view folds again


def test_an_opened_page_counts_for_the_capacity_of_the_conversation() -> None:
    ctx = quire.open("memory:", budget=12_000)
    ctx.pages.update_segment("usr", max_capacity=1_000)
    for turn in range(20):
        ctx.user(f"Question {turn}: " + "word " * (600 if turn == 2 else 120))
        check_view(ctx, 12_000)
    assert ctx.tools.call("expand_details", {"page": "usr-3"}).startswith(
        "InvalidOperation: Cannot open 'usr-3': it takes"
    )
    assert ctx.why("usr-3").call == "detail('usr-3') reads all of it"
    for number in (1, 2, 4, 5, 6, 7, 8):
        ctx.tools.call("expand_details", {"page": f"usr-{number}"})
        assert shown_of(check_view(ctx, 12_000), "usr") <= 1_000


FORMS = ("new", "hidden by the agent", "opened by the agent")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("turns", [1, 30])
def test_a_segment_that_becomes_private_leaves_the_view(form: str, turns: int) -> None:
    ctx = quire.open("memory:", budget=1_500)
    ctx.pages.add_segment(quire.Segment(id="docs", name="Vault"))
    ctx.pages.create_detail_page("Card", "", "The code is 4711.", "docs-0")
    if form == "opened by the agent":
        ctx.pages.hide("docs-0")
    for _ in range(turns):
        ctx.user("word " * 60)
        ctx.render()
    if form == "new":
        ctx.pages.create_detail_page("Other card", "", "The code is 4712.", "docs-0")
    else:
        ctx.tools.call("hide_details" if form == "hidden by the agent" else "expand_details", {"page": "docs-0"})
    assert "The code is" in str(check_view(ctx, 1_500).openai())
    ctx.pages.update_segment("docs", name="Safe")
    view = check_view(ctx, 1_500)
    assert quire.open(ctx.pages.storage).render(preview=True).openai() == view.openai()
    ctx.pages.set_segment_permission("docs", quire.Permission.PRIVATE)
    ctx.pages.create_detail_page("Third card", "", "The code is 4713.", "docs-0")
    view = check_view(ctx, 1_500)
    assert "The code is" not in str(view.openai())
    assert "Safe" not in str(view.openai())
    assert quire.open(ctx.pages.storage).render(preview=True).openai() == view.openai()


def test_why_explains_segments_without_a_line() -> None:
    ctx = quire.open("memory:", budget=1_000)
    ctx.pages.update_segment("mem", max_capacity=10)
    add_notes(ctx, 3)
    for _ in range(20):
        ctx.user("word " * 100)
        check_view(ctx, 1_000)
    assert ctx.why("win-0").rule == "there is nothing in it to show"
    answer = ctx.why("mem-1")
    assert answer.rule == "the capacity of its segment had no room for one line at the last fold"
    assert answer.call == "update_segment('mem', max_capacity=0)"
    ctx.pages.update_segment("mem", max_capacity=0)
    assert ctx.why("mem-1").call == ""


def test_pages_of_a_private_segment_start_no_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.view.view_cache.MOST_WAITING", 5)
    ctx = quire.open("memory:", budget=1_500)
    ctx.pages.add_segment(quire.Segment(id="docs", name="Vault"))
    for _ in range(40):
        ctx.user("word " * 60)
        check_view(ctx, 1_500)
    ctx.pages.set_segment_permission("docs", quire.Permission.PRIVATE)
    add_notes(ctx, 6, "docs-0")
    ctx.agent.create_detail_page("Seat", "", "By the window.", "mem-0")
    before = ctx.seq
    check_view(ctx, 1_500)
    assert ctx.seq == before
