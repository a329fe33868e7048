"""Changing how pages stand: each command is one operation, one journal entry."""

import argparse
from collections.abc import Callable

from quire.cli.command import Command
from quire.cli.opening import add_context, context_of
from quire.cli.out import Out
from quire.cli.visible import visible
from quire.model.page_json import page_values
from quire.model.pages import Lifecycle, Page
from quire.system import ContextSystem

_Operation = Callable[[ContextSystem, argparse.Namespace], object]
_Words = Callable[[Page], str]
_SO_ALREADY = "it was so already"


def _add_index(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("index", metavar="PAGE", help="a page's index, such as usr-7")


def _add_archive(parser: argparse.ArgumentParser) -> None:
    _add_index(parser)
    parser.add_argument("--cold", action="store_true", help="out of the tree, with all below it, until recall")


def _archived(page: Page) -> str:
    if page.lifecycle is Lifecycle.COLD_ARCHIVED:
        return "archived cold, out of the tree; recall brings it back"
    return "archived hot, out of the window but in the tree; restore brings it back"


def _not_cold(page: Page) -> str:
    if page.effective is Lifecycle.HOT_ARCHIVED:
        return "it is archived hot, not cold, so nothing was changed; restore brings it back"
    return _SO_ALREADY


def _command(
    done: str | _Words,
    operation: _Operation,
    example: str,
    add: Callable[[argparse.ArgumentParser], None],
    unchanged: str | _Words = _SO_ALREADY,
) -> Command:
    """A command that does one thing to one page and tells how the page stands then."""

    def run(options: argparse.Namespace, out: Out) -> None:
        with context_of(options) as context:
            before = context.seq
            operation(context.pages, options)
            page, seq = context.pages.get_page(options.index), context.seq
        if out.json:
            out.value({"seq": seq, "changed": seq != before, "page": page_values(page)})
        elif seq == before:
            out.line(f"{out.paint.cyan(page.index)} {visible(page.name)}: {_said(unchanged, page)}")
        else:
            words = f"{_said(done, page)} {out.paint.dim(f'(entry {seq})')}"
            out.line(f"{out.paint.cyan(page.index)} {visible(page.name)}: {words}")

    return Command(run, add, (f"quire {example}",))


def _said(words: str | _Words, page: Page) -> str:
    return words if isinstance(words, str) else words(page)


def _add_move(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("source", metavar="PAGE", help="the page that moves, with all below it")
    parser.add_argument("target", metavar="FOLDER", help="the folder it moves into")
    parser.add_argument(
        "--before", metavar="PAGE", help="the child of the folder to stand before (default: at its end)"
    )


def _move(options: argparse.Namespace, out: Out) -> None:
    with context_of(options) as context:
        moved = context.pages.move_page(options.source, options.target, options.before)
        page = context.pages.get_page(moved.get(options.source, options.source))
        seq = context.seq
    if out.json:
        out.value({"seq": seq, "moved": moved, "page": page_values(page)})
        return
    out.line(
        f"{out.paint.cyan(page.index)} {visible(page.name)}: in {page.parent} now {out.paint.dim(f'(entry {seq})')}"
    )
    for old, new in moved.items():
        out.line(f"   {old} → {new}")


COMMANDS = {
    "expand": _command("open", lambda pages, given: pages.expand(given.index), "expand agent.db usr-7", _add_index),
    "hide": _command("one line now", lambda pages, given: pages.hide(given.index), "hide agent.db usr-7", _add_index),
    "pin": _command("pinned", lambda pages, given: pages.pin(given.index), "pin agent.db mem-3", _add_index),
    "unpin": _command(
        "not pinned any more", lambda pages, given: pages.unpin(given.index), "unpin agent.db mem-3", _add_index
    ),
    "archive": _command(
        _archived,
        lambda pages, given: pages.archive(given.index, cold=given.cold),
        "archive agent.db mem-3 --cold",
        _add_archive,
    ),
    "restore": _command(
        "back in the window", lambda pages, given: pages.restore(given.index), "restore agent.db mem-3", _add_index
    ),
    "recall": _command(
        "back in the tree",
        lambda pages, given: pages.recall(given.index),
        "recall agent.db mem-3",
        _add_index,
        _not_cold,
    ),
    "move": Command(
        _move,
        _add_move,
        ("quire move agent.db mem-3 mem-1", "quire move agent.db mem-3 mem-1 --before mem-2"),
        "In another segment the pages get new indices, which are told.",
    ),
}
