"""Commands for whole contexts: new, ls, fork."""

import argparse

import quire
from quire.cli.command import CONTEXT, STORE, argument, command, existing_name, new_name, token_count
from quire.cli.terminal import Output, Progress, Values, pick
from quire.cli.wording import CommandWording
from quire.errors import QuireError
from quire.storage.urls import mask_address
from quire.view.options import check_budget

_USAGE_COLUMNS = ("pages", "tokens", "bytes")


@command(
    STORE,
    argument("-c", "--context", metavar="NAME", help="the name of the new context (default: 'default')"),
    argument("--system", metavar="TEXT", help="the system prompt"),
    argument(
        "-b", "--budget", type=token_count, metavar="TOKENS", help="the token budget of its views (default: 128k)"
    ),
    examples=(
        "quire new agent.db",
        "quire new agent.db --context support-42 --system 'You are a careful travel agent.'",
        "quire new agent.db --budget 32k",
    ),
)
def run_new(options: argparse.Namespace, out: Output) -> None:
    name = new_name(options)
    if options.budget is not None:
        check_budget(options.budget)  # before the store is created
    with quire.Library(options.where, create=True) as library:
        context = library.create(name) if options.budget is None else library.create(name, budget=options.budget)
        if options.system is not None:
            context.system(options.system)
        text = f"created context {out.paint.cyan(name)} in {mask_address(options.where)}"
        out.result({"name": name, "seq": context.seq}, text)


@command(
    STORE,
    argument("--prefix", default="", metavar="TEXT", help="only names that start with this"),
    argument("-l", "--long", action="store_true", help="also count pages, tokens and bytes; reads all pages"),
    examples=(
        "quire ls agent.db",
        "quire ls agent.db --long --prefix support-",
        "quire ls agent.db --json | jq -r .name",
    ),
)
def run_ls(options: argparse.Namespace, out: Output) -> None:
    rows = []
    wording = CommandWording(options)
    with quire.Library(options.where, create=False) as library, Progress("Counting") as progress:
        for number, name in enumerate(library.list(prefix=options.prefix)):
            progress.at(number, name)
            try:
                values = _context_values(library, name, long=options.long)
            except QuireError as error:  # a context that cannot be read must not hide the others
                values = {"name": name, "problem": error.describe(wording)}
            if out.json:
                out.value(values)
            else:
                rows.append(values)
    if not out.json:
        _print_contexts(rows, out, long=options.long)


def _context_values(library: quire.Library, name: str, *, long: bool) -> Values:
    info = library.info(name)
    values: Values = {"name": name, **pick(info, "seq", "messages")}
    values |= {"created": info.created_at, "updated": info.updated_at, "finished": info.finished}
    if long and info.finished:
        values |= pick(library.usage(name), *_USAGE_COLUMNS)
    return values


def _print_contexts(contexts: list[Values], out: Output, *, long: bool) -> None:
    if not contexts:
        out.line("no contexts")
        return
    numbers = ("messages", "seq", *(_USAGE_COLUMNS if long else ()))
    head = ("context", *("entries" if name == "seq" else name for name in numbers), "last change (UTC)")
    rows = [
        (values["name"], *(f"{values[name]:,}" if name in values else "" for name in numbers), _state(values))
        for values in contexts
    ]
    out.table(head, rows, right=range(1, len(head) - 1))


def _state(values: Values) -> str:
    if "problem" in values:
        return f"{values['problem']}"
    return f"{values['updated']:%Y-%m-%d %H:%M}" if values["finished"] else "unfinished copy: run migrate again"


@command(
    *CONTEXT,
    argument("name", metavar="NEW", help="the name of the new context"),
    argument("--at", metavar="POINT", help="a checkpoint or the number of an entry (default: the last)"),
    examples=("quire fork agent.db what-if", "quire fork agent.db before-the-mess --context support-42 --at 120"),
)
def run_fork(options: argparse.Namespace, out: Output) -> None:
    at = parse_point(options.at) if options.at is not None else None
    with quire.Library(options.where, create=False) as library:
        source = existing_name(library, options)
        library.fork(source, options.name, at)
        seq = library.open(options.name, create=False).seq
    point = f" at {at}" if at is not None else ""
    text = f"created context {out.paint.cyan(options.name)} from {source}{point}"
    out.result({"name": options.name, "of": source, "at": at, "seq": seq}, text)


def parse_point(text: str) -> str | int:
    """Return a point in history: the number of an entry if the text is a number, else the name of a checkpoint."""
    return int(text) if text.isascii() and text.isdigit() else text
