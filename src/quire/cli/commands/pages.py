"""Commands that change the state of pages; each is one operation and one journal entry."""

import argparse
from collections.abc import Callable

from quire.cli.command import Command, add_context, add_page, open_context
from quire.cli.terminal import Output, escape_control
from quire.model.page_json import page_to_dict
from quire.model.pages import Lifecycle, Page
from quire.system import ContextSystem

_Operation = Callable[[ContextSystem, argparse.Namespace], object]
_Describe = Callable[[Page], str]
_UNCHANGED = "no change"


def _add_archive(parser: argparse.ArgumentParser) -> None:
    add_page(parser)
    parser.add_argument("--cold", action="store_true", help="remove it from the tree, with all pages below it")


def _describe_archived(page: Page) -> str:
    if page.lifecycle is Lifecycle.COLD_ARCHIVED:
        return "archived cold: removed from the tree; recall brings it back"
    return "archived hot: in the tree, but not in the view; restore brings it back"


def _describe_not_cold(page: Page) -> str:
    if page.effective is Lifecycle.HOT_ARCHIVED:
        return "no change: it is archived hot, not cold; restore brings it back"
    return _UNCHANGED


def _page_command(
    done: str | _Describe,
    operation: _Operation,
    example: str,
    add: Callable[[argparse.ArgumentParser], None] = add_page,
    unchanged: str | _Describe = _UNCHANGED,
) -> Command:
    """Return a command that runs one operation on one page and prints the new state."""

    def run(options: argparse.Namespace, out: Output) -> None:
        with open_context(options) as context:
            before = context.seq
            operation(context.pages, options)
            page, seq = context.pages.get_page(options.index), context.seq
        if out.json:
            out.value({"seq": seq, "changed": seq != before, "page": page_to_dict(page)})
            return
        words = unchanged if seq == before else done
        state = words if isinstance(words, str) else words(page)
        entry = "" if seq == before else f" {out.paint.dim(f'(entry {seq})')}"
        out.line(f"{out.paint.cyan(page.index)} {escape_control(page.name)}: {state}{entry}")

    return Command(run, add, (f"quire {example}",))


def _add_move(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("source", metavar="PAGE", help="the page to move, with all pages below it")
    parser.add_argument("target", metavar="FOLDER", help="the folder to move it into")
    parser.add_argument("--before", metavar="PAGE", help="insert it before this page (default: at the end)")


def _move(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        moved = context.pages.move_page(options.source, options.target, options.before)
        page = context.pages.get_page(moved.get(options.source, options.source))
        seq = context.seq
    if out.json:
        out.value({"seq": seq, "moved": moved, "page": page_to_dict(page)})
        return
    entry = out.paint.dim(f"(entry {seq})")
    out.line(f"{out.paint.cyan(page.index)} {escape_control(page.name)}: now in {page.parent} {entry}")
    for old, new in moved.items():
        out.line(f"   {old} → {new}")


COMMANDS = {
    "expand": _page_command("open", lambda pages, given: pages.expand(given.index), "expand agent.db usr-7"),
    "hide": _page_command("shown as one line", lambda pages, given: pages.hide(given.index), "hide agent.db usr-7"),
    "pin": _page_command("pinned", lambda pages, given: pages.pin(given.index), "pin agent.db mem-3"),
    "unpin": _page_command("not pinned", lambda pages, given: pages.unpin(given.index), "unpin agent.db mem-3"),
    "archive": _page_command(
        _describe_archived,
        lambda pages, given: pages.archive(given.index, cold=given.cold),
        "archive agent.db mem-3 --cold",
        _add_archive,
    ),
    "restore": _page_command(
        "back in the view", lambda pages, given: pages.restore(given.index), "restore agent.db mem-3"
    ),
    "recall": _page_command(
        "back in the tree",
        lambda pages, given: pages.recall(given.index),
        "recall agent.db mem-3",
        unchanged=_describe_not_cold,
    ),
    "move": Command(
        _move,
        _add_move,
        ("quire move agent.db mem-3 mem-1", "quire move agent.db mem-3 mem-1 --before mem-2"),
        "If the folder is in another segment, the pages get new indices; the command prints them.",
    ),
}
