"""Commands that change the state of pages; each is one operation and one journal entry."""

import argparse
from collections.abc import Callable

from quire.cli.command import CONTEXT, PAGE, Argument, Command, argument, command, open_context
from quire.cli.terminal import Output, escape_control, pick
from quire.model.page_json import page_to_dict
from quire.model.pages import Lifecycle, Page
from quire.system import ContextSystem

_Describe = Callable[[Page], str]


def _page_command(
    operation: Callable[..., object],
    done: str | _Describe,
    example: str,
    *more: Argument,
    flags: tuple[str, ...] = (),
    unchanged: str | _Describe = "no change",
) -> Command:
    """Return a command that runs one operation on one page, with the given flags, and prints the new state."""

    @command(*PAGE, *more, examples=(f"quire {example}",))
    def run(options: argparse.Namespace, out: Output) -> None:
        with open_context(options) as context:
            before = context.seq
            operation(context.pages, options.index, **pick(options, *flags))
            page, seq = context.pages.get_page(options.index), context.seq
        words = unchanged if seq == before else done
        state = words if isinstance(words, str) else words(page)
        entry = "" if seq == before else f" {out.paint.dim(f'(entry {seq})')}"
        out.result(
            {"seq": seq, "changed": seq != before, "page": page_to_dict(page)},
            f"{out.paint.cyan(page.index)} {escape_control(page.name)}: {state}{entry}",
        )

    return run


def _describe_archived(page: Page) -> str:
    if page.lifecycle is Lifecycle.COLD_ARCHIVED:
        return "archived cold: removed from the tree; recall brings it back"
    return "archived hot: in the tree, but not in the view; restore brings it back"


def _describe_not_cold(page: Page) -> str:
    if page.effective is Lifecycle.HOT_ARCHIVED:
        return "no change: it is archived hot, not cold; restore brings it back"
    return "no change"


run_expand = _page_command(ContextSystem.expand, "open", "expand agent.db usr-7")
run_hide = _page_command(ContextSystem.hide, "shown as one line", "hide agent.db usr-7")
run_pin = _page_command(ContextSystem.pin, "pinned", "pin agent.db mem-3")
run_unpin = _page_command(ContextSystem.unpin, "not pinned", "unpin agent.db mem-3")
run_archive = _page_command(
    ContextSystem.archive,
    _describe_archived,
    "archive agent.db mem-3 --cold",
    argument("--cold", action="store_true", help="remove it from the tree, with all pages below it"),
    flags=("cold",),
)
run_restore = _page_command(ContextSystem.restore, "back in the view", "restore agent.db mem-3")
run_recall = _page_command(
    ContextSystem.recall, "back in the tree", "recall agent.db mem-3", unchanged=_describe_not_cold
)


@command(
    *CONTEXT,
    argument("source", metavar="PAGE", help="the page to move, with all pages below it"),
    argument("target", metavar="FOLDER", help="the folder to move it into"),
    argument("--before", metavar="PAGE", help="insert it before this page (default: at the end)"),
    examples=("quire move agent.db mem-3 mem-1", "quire move agent.db mem-3 mem-1 --before mem-2"),
    about="If the folder is in another segment, the pages get new indices; the command prints them.",
)
def run_move(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        moved = context.pages.move_page(options.source, options.target, options.before)
        page = context.pages.get_page(moved.get(options.source, options.source))
        seq = context.seq
    entry = out.paint.dim(f"(entry {seq})")
    out.result(
        {"seq": seq, "moved": moved, "page": page_to_dict(page)},
        f"{out.paint.cyan(page.index)} {escape_control(page.name)}: now in {page.parent} {entry}",
        *(f"   {old} → {new}" for old, new in moved.items()),
    )
