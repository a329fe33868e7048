"""Opening pages: if a tool answers that a page is open, the next view shows it."""

import pytest

from quire import Context, InvalidOperation
from tests.books import everything
from tests.talks import new_talk

OPEN = "{} is open in your window."


def folded() -> Context:
    """Return a context with a chapter of two exchanges that is shown as one line."""
    ctx = new_talk()
    for day in ("Monday", "Tuesday"):
        ctx.user(f"On {day} we fly.")
    ctx.pages.create_contents_page("Days", "which days", "usr-0", ["usr-1", "usr-2"])
    ctx.pages.hide("usr-3")
    ctx.user("When do we fly?")
    ctx.render()
    return ctx


def quotations(ctx: Context) -> list[str]:
    """Return the quoted pages, each as text without its head."""
    again = new_talk(ctx.pages.storage, ctx.name).render()
    view = ctx.render()
    assert again.openai() == view.openai()  # the same on another handle
    blocks = (str(message["content"]) for message in view.openai())
    return [block.partition("\n")[2] for block in blocks if "Opened [" in block.partition("\n")[0]]


def test_a_chapter_can_be_opened_after_a_page_in_it() -> None:
    ctx = folded()
    assert ctx.tools.call("expand_details", {"page": "usr-1"}) == OPEN.format("usr-1")
    assert quotations(ctx) == ["User: On Monday we fly.\n"]
    before = ctx.render()
    assert ctx.tools.call("expand_details", {"page": "usr-3"}) == OPEN.format("usr-3")
    first, second = quotations(ctx)
    assert first == "User: On Monday we fly.\n"
    assert second.startswith("[usr-1 ")  # it is quoted above
    assert second.endswith("\nUser: On Tuesday we fly.\n")
    assert ctx.render().messages[: len(before.messages)] == before.messages
    assert ctx.check() == []


def test_opening_twice_changes_nothing() -> None:
    ctx = folded()
    for page in ("usr-1", "usr-3"):
        ctx.agent.expand_details(page)
    before = everything(ctx.pages)
    for page in ("usr-1", "usr-3"):
        assert ctx.tools.call("expand_details", {"page": page}) == OPEN.format(page)
    assert everything(ctx.pages) == before


def test_a_folder_lists_what_was_quoted_before() -> None:
    ctx = folded()
    ctx.pages.create_contents_page("Places", "", "mem-0")
    ctx.pages.create_detail_page("Pier", "where", "Pier 91", "mem-1")
    ctx.pages.archive("mem-2")
    ctx.pages.hide("mem-1")
    ctx.render()
    for page in ("mem-2", "mem-1"):
        ctx.tools.call("expand_details", {"page": page})
    assert quotations(ctx) == [" Pier 91\n", "[mem-2 2] Pier: where\n"]


def test_a_folder_names_what_was_put_into_it_since_the_last_fold() -> None:
    ctx = folded()
    ctx.tools.call("write_page", {"name": "Places", "summary": "", "pages": []})
    ctx.tools.call("write_page", {"name": "Pier", "text": "Pier 91", "folder": "mem-1"})
    assert ctx.tools.call("expand_details", {"page": "mem-1"}) == OPEN.format("mem-1")
    assert quotations(ctx) == ["[mem-2] (shown here from the next fold on)\n"]
    before = ctx.render()
    ctx.tools.call("write_page", {"page": "mem-2", "name": "Dock", "text": "Dock 9"})
    ctx.tools.call("write_page", {"name": "Later", "text": "x", "folder": "mem-1"})
    assert ctx.render().messages[: len(before.messages)] == before.messages
    assert quotations(ctx) == ["[mem-2] (shown here from the next fold on)\n"]


def test_a_note_that_a_tool_wrote_can_be_opened() -> None:
    ctx = folded()
    ctx.tools.call("write_page", {"name": "Pier", "text": "Pier 91"})
    ctx.tools.call("expand_details", {"page": "mem-1"})
    assert quotations(ctx) == [" Pier 91\n"]


@pytest.mark.parametrize("size", [390, 410])
def test_a_page_too_large_for_the_window_is_refused(size: int) -> None:
    ctx = new_talk()
    ctx.budget = 1_000
    ctx.pages.create_detail_page("long", "", "字 " * size, "mem-0")
    ctx.pages.hide("mem-1")
    ctx.user("Read it.")
    before = everything(ctx.pages)
    said = ctx.tools.call("expand_details", {"page": "mem-1"})
    if size < 400:
        assert said == OPEN.format("mem-1")
        assert [page.granularity for page in ctx.render().pages if page.index == "mem-1"] == ["line", "whole"]
    else:
        assert said == (
            f"InvalidOperation: Cannot open 'mem-1': it takes {size} tokens, your window has 1,000."
            " Call read_page('mem-1', start=0, length=4000) to read it in parts."
        )
        assert everything(ctx.pages) == before


def test_a_folder_too_large_for_the_window_is_refused() -> None:
    ctx = new_talk()
    ctx.budget = 1_000
    ctx.pages.create_contents_page("all", "", "mem-0")
    for number in range(10):
        ctx.pages.create_detail_page(f"note {number}", "", "word " * 50, "mem-1")
    ctx.pages.hide("mem-1")
    with pytest.raises(InvalidOperation, match=r"'mem-1'.*500 tokens.*1,000"):
        ctx.agent.expand_details("mem-1")
    ctx.pages.expand("mem-1")
    for number in range(10):
        ctx.pages.hide(f"mem-{number + 2}")  # as lines they fit
    ctx.pages.hide("mem-1")
    ctx.agent.expand_details("mem-1")


def test_a_large_page_that_is_open_stays_so() -> None:
    ctx = new_talk()
    ctx.budget = 1_000
    ctx.pages.create_detail_page("long", "", "word " * 500, "mem-0")
    ctx.user("Read it.")
    assert ctx.tools.call("expand_details", {"page": "mem-1"}) == OPEN.format("mem-1")
