"""The demo: a small context in a fresh SQLite file, and what quire does with it. Nothing here is pretended."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import quire
from quire.cli.paint import Paint
from quire.cli.tree import draw_tree
from quire.errors import QuireError
from quire.system import ContextSystem


def run_demo(paint: Paint) -> None:
    """Talk, shrink, refuse, undo, try something out, find, branch, reopen."""
    path = Path(mkdtemp(prefix="quire-demo-")) / "agent.db"
    with quire.open(path, "travel-agent") as context:
        pages = context.pages
        _say(paint, "1", f"A new context in {path}")
        notes, flights = _fill(context)
        _show(pages, paint)
        print(f"   {len(context.messages())} messages; a call and its result are one page: {paint.cyan(flights)}")

        _say(paint, "2", "Long results shrink to one line; old notes go to the archive; nothing is lost")
        before = _open_tokens(pages)
        pages.hide(flights)
        pages.archive(notes, cold=True)
        _show(pages, paint)
        print(f"   open text: {paint.yellow(f'{before:,} → {_open_tokens(pages):,} tokens')}")

        _say(paint, "3", "The system prompt is pinned: no route hides it")
        _try(paint, lambda: pages.hide("sys-1"))

        _say(paint, "4", "Every change is in the journal, and any one can be undone")
        for entry in list(context.history())[-2:]:
            print(f"   {paint.dim(f'{entry.seq:>3}')} {entry.operation} {', '.join(entry.pages)}")
        hidden = next(context.history(operation="hide"))
        context.undo(hidden)
        print(f"   undo({hidden.seq}): {flights} is open again")

        _say(paint, "5", "Words that are gone when a block ends, and the whole context back at once")
        with context.temporary():
            context.user("Only for this step: answer in French.")
            print(f"   in the block {len(context.messages())} messages,", end=" ")
        print(f"after it {len(context.messages())}")
        context.checkpoint("before the change of plans")
        summary = pages.get_page(context.conversation.compress([1, 2, 3]).summaries[0])
        print(f"   compressed to {paint.cyan(summary.index)}: {summary.description[:60]}…")
        context.rollback("before the change of plans")
        print(f"   rolled back: {len(context.messages())} messages, every original byte for byte")

        _say(paint, "6", "Archived pages are still found, in any language")
        for query in ("wheelchair", "靠窗"):
            hit = context.find(query)[0]
            print(f"   find({query!r}) → {paint.cyan(hit.index)} {hit.name}")

        _say(paint, "7", "A fork shares what was said and goes its own way")
        branch = context.fork("what-if")
        branch.user("What about a train?")
        print(f"   travel-agent: {len(context.messages())} messages, what-if: {len(branch.messages())}")

    with quire.open(path, "travel-agent") as context:
        _say(paint, "8", "Reopened from disk")
        problems = context.check()
        count = sum(1 for _ in context.pages.list_pages())
        print(f"   {count} pages, {context.seq} journal entries, check(): {len(problems)} problems")

    print(f"\n{paint.bold('Try next')}")
    python = os.path.relpath(sys.executable)
    print(f"   {python} -m quire tree {path} --context travel-agent")
    print(
        f"   {python} -c \"import quire; print(quire.open({str(path)!r}, 'travel-agent').pages.detail({flights!r}))\""
    )
    print("   and the README's lines of code, on your own file")


def _fill(context: quire.Context) -> tuple[str, str]:
    """An agent a few turns into its work; the folder of its notes and the page of a long tool result."""
    context.system("You are a careful travel agent. Never book twice.")
    pages = context.pages
    window = pages.create_detail_page("座位", "乘客偏好靠窗座位", "乘客想要靠窗的座位，不要中间的。", "mem-0")
    chair = pages.create_detail_page("Assistance", "Needs a wheelchair", "Mei Li needs a wheelchair at SEA.", "mem-0")
    notes = pages.create_contents_page("Preferences", "What the traveller told us", "mem-0", [window, chair])
    context.user("I want to fly to Seattle on May 20.")
    context.assistant("Let me look.", tool_calls=[quire.ToolCall("c1", "search_flights", '{"to": "SEA"}')])
    offers = "\n".join(
        f"HAT{number} JFK 0{number % 10}:15 → SEA, economy ${180 + 7 * number}, seats left {number % 9}"
        for number in range(40)
    )
    found = context.tool_result("c1", offers)
    context.assistant("I suggest HAT3 at 03:15 for $201.")
    return notes, str(context.conversation.page_of(found))


def _open_tokens(pages: ContextSystem) -> int:
    """The tokens of all text that is open in the window, counted page by page."""
    listed = [page for page in pages.list_pages() if page.effective is quire.Lifecycle.ACTIVE]
    return sum(page.tokens if page.visibility is quire.Visibility.EXPANDED else page.summary_tokens for page in listed)


def _say(paint: Paint, number: str, text: str) -> None:
    print(f"\n{paint.bold(f'{number}. {text}')}")


def _show(pages: ContextSystem, paint: Paint) -> None:
    for line in draw_tree(pages, paint):
        print(f"   {line}")


def _try(paint: Paint, action: Callable[[], None]) -> None:
    try:
        action()
    except QuireError as error:
        print(f"   {paint.red(error.code)}: {error}")
