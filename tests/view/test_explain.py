"""The answers of `why`, `dump` and a refused view agree with the view that was sent."""

import pytest

import quire
from quire import CompressionConfig, Context, IrreducibleFloor, ToolCall
from quire.storage.base import Family, Record


def talk(budget: int = 800, turns: int = 12, *, enabled: bool = False) -> Context:
    ctx = quire.open("memory:", budget=budget, compression=CompressionConfig(enabled=enabled))
    ctx.system("Be careful.")
    for turn in range(turns):
        ctx.user(f"Question {turn} " + "word " * 40)
        ctx.assistant(f"Answer {turn} " + "词语 " * 30)
    return ctx


def agrees(ctx: Context, view: quire.View, given: quire.View | None = None) -> set[str]:
    """Check the explanation of every page of the conversation. Return how they are shown."""
    shown = {page.index: page.granularity for page in view.pages}
    pages = [item.id for item in ctx.items()]
    for index in pages:
        why = ctx.why(index, given)
        assert why.shown == shown.get(index, "no"), why
        assert "nothing in it" not in why.rule
    return {ctx.why(index, given).shown for index in pages}


def test_a_view_that_was_shortened_for_itself_is_explained_as_it_was_sent() -> None:
    ctx = talk()
    view = ctx.render()
    assert agrees(ctx, view) >= {"no", "whole"}
    why = ctx.why("usr-1")
    span = next(page.index for page in view.pages if "…" in page.index)
    assert why.rule == f"folded in this view alone, which had no room for all: it is in the line {span}"
    assert why.call == "pin('usr-1')"
    ctx.pages.pin("usr-1")
    ctx.render()
    assert ctx.why("usr-1").rule == "pinned: shown whole, always"


def test_what_changed_since_is_seen_at_once() -> None:
    ctx = talk()
    ctx.render()
    ctx.pages.hide("usr-24")
    assert ctx.why("usr-24").shown == "line"


def test_a_view_that_is_given_is_explained() -> None:
    ctx = talk(100_000, enabled=True)
    own, small = ctx.render(), ctx.render(max_tokens=700)
    assert agrees(ctx, own) == {"whole"}
    assert agrees(ctx, small, small) >= {"no", "whole"}
    with pytest.raises(quire.InvalidValue, match="view"):
        ctx.why("usr-1", "view")  # type: ignore[arg-type]


def test_a_clipped_message_of_a_shortened_view_is_explained() -> None:
    ctx = talk(turns=0)
    ctx.user("word " * 3_000)
    view = ctx.render()
    why = ctx.why("usr-1")
    tokens = next(page.tokens for page in view.pages if page.index == "usr-1")
    assert (why.shown, why.tokens) == ("clipped", tokens)
    assert why.rule == f"too large for the view: clipped to {tokens:,} tokens, in this view alone"


def test_a_view_without_the_prompt_says_so() -> None:
    ctx = talk(100_000)
    ctx.render(include_system_prompt=False)
    assert ctx.why("sys-1").rule == "the view was drawn without the system prompt"
    ctx.render()
    assert ctx.why("sys-1").shown == "whole"


def test_a_folder_that_is_open_says_so() -> None:
    ctx = talk(100_000)
    chapter = ctx.pages.create_contents_page("Both", "", "usr-0", ["usr-2", "usr-3"])
    notes = ctx.pages.create_contents_page("Notes", "", parent="mem-0")
    ctx.pages.create_detail_page("Note", "", "text", notes)
    empty = ctx.pages.create_contents_page("Empty", "", parent="usr-0")
    view = ctx.render()
    sizes = {page.index: page.tokens for page in view.pages}
    why = ctx.why(chapter)
    assert (why.shown, why.rule, why.call) == ("open", "open: its pages are shown in its place", f"hide({chapter!r})")
    assert why.tokens == sizes["usr-2"] + sizes["usr-3"]
    assert ctx.why("usr-0").shown == "open"
    assert ctx.why(notes).rule == "open: its pages are shown below its name"
    assert ctx.why(empty).rule == "there is nothing in it to show"
    ctx.pages.hide(chapter)
    assert ctx.why(chapter).rule == "hidden: shown as one line"
    assert ctx.why("usr-2").rule == f"below {chapter!r}, which is not open"


def test_what_does_not_fit_is_named_with_the_preamble_and_the_reserve() -> None:
    ctx = talk(300, turns=1)
    preamble = ctx.render(max_tokens=5_000).by_kind()["preamble"]
    with pytest.raises(IrreducibleFloor, match=rf"preamble \({preamble}\)") as error:
        ctx.render(max_tokens=20)
    assert dict(error.value.parts)["preamble"] == preamble
    assert error.value.budget == 20 < error.value.tokens
    assert "reserve" not in str(error.value)
    with pytest.raises(IrreducibleFloor, match=r"20 of 300.* 280 are reserved: .* reserve less") as error:
        ctx.render(reserve=280)
    assert error.value.budget == 20


def test_a_dump_names_the_calls_of_a_message_that_says_nothing() -> None:
    ctx = quire.open("memory:")
    ctx.user("Look.")
    ctx.assistant(None, [ToolCall("a", "search"), ToolCall("b", "read_file")])
    ctx.tool_result("a", "x")
    assert ctx.dump().splitlines()[1].endswith("Assistant: search, read_file")


def test_counting_reads_no_body(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = quire.MemoryStorage()
    ctx = quire.open(storage)
    ctx.system("Be careful.")
    for turn in range(5):
        ctx.user(f"Question {turn}")
    read: list[str] = []
    get = storage.get

    def noted(context: str, family: Family, key: int) -> Record | None:
        read.append(family)
        return get(context, family, key)

    monkeypatch.setattr(storage, "get", noted)
    fresh = quire.open(storage)
    assert fresh.stats().active_items == 6
    assert not {"message", "body"} & set(read)


def apply_call(ctx: quire.Context, call: str) -> None:
    """Make a call that `why` names."""
    name, _, index = call.rstrip(")").partition("(")
    getattr(ctx.pages, name)(index.strip("'"))


def test_the_call_that_why_names_shows_the_page() -> None:
    for budget in (1_200, 3_000):
        ctx = quire.open("memory:", budget=budget)
        for size in (2, 10, 40, 120):
            for number in range(4):
                ctx.pages.create_detail_page(f"Rule {number}", "", "Refunds need a receipt. " * size, "mem-0")
                ctx.agent.create_detail_page(f"Note {number}", "", "He wants a window seat. " * size, "mem-0")
        for turn in range(40):
            ctx.user(f"Question {turn} on an order? " * 4)
            ctx.render()
            ctx.assistant(f"Answer {turn}. " * 6)
        pages = [page for page in ctx.pages.list_pages() if isinstance(page, quire.DetailPage)]
        calls = set()
        for page in pages:
            ctx.render()
            why = ctx.why(page.index)
            calls.add(why.call.partition("(")[0])
            if why.shown == "whole" or why.call.startswith("detail("):
                assert why.shown == "whole" or page.tokens > 0.4 * budget
                continue
            with ctx.fork(f"{page.index}-{budget}") as copy:
                copy.render()
                apply_call(copy, copy.why(page.index).call)
                assert copy.render().tokens <= budget
                assert copy.why(page.index).shown == "whole", (page.index, why)
        assert {"expand", "pin", "hide"} <= calls


def test_a_page_larger_than_the_budget_is_not_to_be_pinned() -> None:
    ctx = quire.open("memory:", budget=2_000)
    page = ctx.pages.create_detail_page("Policy", "", "Refunds only within 30 days. " * 300, "mem-0")
    ctx.user("Hello")
    ctx.render()
    why = ctx.why(page)
    assert why.rule == "there is no room for it since the last fold: it is one line"
    assert why.call == f"detail({page!r}) reads all of it"


def test_an_open_folder_without_room_is_not_to_be_opened() -> None:
    ctx = quire.open("memory:", budget=900)
    folder = ctx.pages.create_contents_page("Rules", "", "mem-0")
    page = ctx.pages.create_detail_page("Seats", "", "12A", folder)
    for number in range(25):
        ctx.pages.create_detail_page(f"Policy {number}", "", "Refunds only within 30 days. " * 10, "mem-0")
    ctx.user("Hello")
    ctx.render()
    assert ctx.why(folder).shown == "no"
    assert ctx.why(folder).call == f"children({folder!r}) lists its pages"  # expand() would change nothing
    assert ctx.why(page).call == f"expand({page!r})"


def test_why_of_a_note_that_its_agent_hid() -> None:
    ctx = quire.open("memory:", budget=3_000)
    note = ctx.agent.create_detail_page("Seat", "", "12A", "mem-0")
    ctx.user("Hello")
    ctx.render()
    ctx.agent.hide_details(note)
    ctx.render()
    why = ctx.why(note)
    assert why.rule == f"hidden by the agent (entry {ctx.seq}): the view follows at the next fold"
    assert why.call == f"expand({note!r})"


def test_the_error_for_a_floor_above_the_budget_names_what_helps() -> None:
    ctx = quire.open("memory:", budget=2_000)
    page = ctx.pages.create_detail_page("Policy", "", "Refunds only within 30 days. " * 300, "mem-0")
    ctx.pages.pin(page)
    ctx.user("Hello")
    with pytest.raises(IrreducibleFloor, match=r"Raise the budget, or unpin pages\. Call unpin\('mem-1'\)") as error:
        ctx.render()
    assert [(hint.call, hint.page) for hint in error.value.hints] == [("unpin", page)]
    ctx.system("Be brief.")
    with pytest.raises(IrreducibleFloor, match="Raise the budget, shorten the system prompt, or unpin pages"):
        ctx.render()
    ctx.pages.unpin(page)
    with pytest.raises(IrreducibleFloor, match=r"Raise the budget, or shorten the system prompt\.$"):
        ctx.render(max_tokens=20)
    for wrong in (0, -1, True):
        with pytest.raises(quire.InvalidValue, match="a number of tokens above 0 is needed"):
            ctx.render(max_tokens=wrong)
