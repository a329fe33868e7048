"""Commands that show the view: view, render, why.

`view` draws a map of the model's window: each cell is a number of tokens, its letter the kind of content. The letters
carry the meaning without colours: a capital is cached (the view before started with the same tokens), a small letter is
new, a dot is free.
"""

import argparse
from collections.abc import Iterator
from itertools import groupby
from math import ceil, inf, nan

import quire
from quire import View
from quire.cli.command import BUDGET, CONTEXT, PAGE, argument, command, open_context, token_count
from quire.cli.terminal import Output, Paint, Values, count_of, pick, width
from quire.cli.wording import CommandWording
from quire.errors import InvalidValue
from quire.model.text import clean_line, indent_lines

_FREE = "free"
_KINDS = {
    "system": ("s", "magenta", "system"),
    "preamble": ("p", "red", "preamble"),
    "segment": ("g", "green", "segments"),
    "folded": ("f", "blue", "folded lines"),
    "opening": ("p", "red", "opening"),
    "note": ("n", "green", "notes"),
    "opened": ("o", "cyan", "opened pages"),
    "exchange": ("e", "yellow", "exchanges"),
    _FREE: (".", "dim", "free"),
}
"""The letter, the colour and the name of each kind of content."""
_OTHER = ("t", "cyan", "tail")
_STEPS = (1, 2, 5)
_MAX_ROWS = 4


def draw_bar(view: View, cells: int, paint: Paint) -> str:
    """Return the map as one line of `cells` cells."""
    return _row(_cells(view, cells, _total(view) / cells), paint)


def draw_map(view: View, paint: Paint, columns: int) -> Iterator[str]:
    """Yield the lines of the map and its legend for a terminal of `columns` columns."""
    size = _cell_size(_total(view), columns * _MAX_ROWS)
    cells = _cells(view, ceil(_total(view) / size), size)
    row = ceil(len(cells) / ceil(len(cells) / columns))
    for start in range(0, len(cells), row):
        yield _row(cells[start : start + row], paint)
    yield from _wrap(list(_legend(view, size, paint)), columns)


def _legend(view: View, size: int, paint: Paint) -> Iterator[tuple[str, int]]:
    """Yield the entries of the legend, each with its width."""
    tokens_of = view.by_kind()
    tokens_of[_FREE] = max(0, view.budget - view.tokens)
    for kind, tokens in tokens_of.items():
        letter, colour, name = _KINDS.get(kind, _OTHER)
        words = f" {name} {tokens:,}"
        yield paint.colour(colour, letter.upper()) + words, width(letter + words)
    for words in (f"a cell is {count_of(size, 'token')}", f"CAPITALS: {view.shared_prefix:,} from the cache"):
        yield paint.dim(words), width(words)


def _wrap(entries: list[tuple[str, int]], columns: int) -> Iterator[str]:
    line, used = "", 0
    for text, wide in entries:
        if line and used + 3 + wide > columns:
            yield line
            line, used = "", 0
        line, used = (f"{line}   {text}", used + 3 + wide) if line else (text, wide)
    if line:
        yield line


def _cells(view: View, number: int, size: float) -> list[tuple[str, bool]]:
    """Return for each cell the kind that takes most of it, and whether it is cached."""
    spans = list(_spans(view))
    cells = []
    for cell in range(number):
        start, end, place = cell * size, (cell + 1) * size, 0
        most, content = 0.0, (_FREE, False)
        for kind, cached, tokens in spans:
            overlap = min(end, place + tokens) - max(start, place)
            place += tokens
            if overlap > most:
                most, content = overlap, (kind, cached)
        cells.append(content)
    return cells


def _spans(view: View) -> Iterator[tuple[str, bool, int]]:
    """Yield the content of the window in order, neighbours of one kind together, free space last.

    Each span is a kind, whether it is cached, and its tokens.
    """
    pieces: list[tuple[str, bool, int]] = []
    cached = view.shared_prefix
    for part in view.parts:
        known = min(part.tokens, cached)
        cached -= known
        pieces += [(part.kind, True, known), (part.kind, False, part.tokens - known)]
    pieces.append((_FREE, False, max(0, view.budget - view.tokens)))
    filled = (piece for piece in pieces if piece[2])
    for (kind, is_cached), run in groupby(filled, key=lambda piece: piece[:2]):
        yield kind, is_cached, sum(tokens for _, _, tokens in run)


def _row(cells: list[tuple[str, bool]], paint: Paint) -> str:
    row = ""
    for (kind, cached), run in groupby(cells):
        letter, colour, _ = _KINDS.get(kind, _OTHER)
        row += paint.colour(colour, (letter.upper() if cached else letter) * len(list(run)))
    return row


def _total(view: View) -> int:
    return max(view.budget, view.tokens, 1)


def _cell_size(tokens: int, limit: int) -> int:
    """Return the smallest round number of tokens for a cell such that the map has at most `limit` cells."""
    size = 1
    while True:
        for step in _STEPS:
            if size * step * limit >= tokens:
                return size * step
        size *= 10


_FORMATS = ("text", "openai", "anthropic", "responses")


@command(
    *CONTEXT,
    BUDGET,
    examples=("quire view agent.db --context support-42", "quire view agent.db --budget 8000"),
    about="The letter of a cell is the kind of content; capital letters are in the provider's cache.",
)
def run_view(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        view = context.render(max_tokens=options.budget, preview=True)
    pages = [
        {"index": shown.index, "kind": part.kind, "shown": shown.granularity, "tokens": shown.tokens}
        for part in view.parts
        for shown in part.pages
    ]
    counts = {"messages": len(view.messages), "kinds": view.by_kind()}
    out.result(
        {**pick(view, "seq", "tokens", "budget"), **counts, "pages": pages},
        _size(view),
        *draw_map(view, out.paint, out.columns),
    )


def _recall_share(text: str) -> float | bool:
    """Return True for `auto`, or a share. Raises `ArgumentTypeError`."""
    share = _number(text)
    if text != "auto" and not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1, and not auto")
    return text == "auto" or share


def _rarity(text: str) -> float:
    """Return a number from 0. Raises `ArgumentTypeError`."""
    if not 0 <= _number(text) < inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return float(text)


def _number(text: str) -> float:
    """Return a number; NaN, which is in no range, for other text."""
    try:
        return float(text)
    except ValueError:
        return nan


def _size(view: quire.View) -> str:
    return f"{view.tokens:,} of {view.budget:,} tokens, {count_of(len(view.messages), 'message')}"


@command(
    *CONTEXT,
    BUDGET,
    argument("-f", "--format", choices=_FORMATS, default="text", help="output format (default: %(default)s)"),
    argument(
        "--recall",
        type=_recall_share,
        metavar="SHARE",
        help="recall pages that match the last user message, in at most this share of the budget (0.25), or auto",
    ),
    argument(
        "--recall-floor",
        type=_rarity,
        metavar="RARITY",
        help="recall little for a message of common words: 0 never, 2 more often (default: 1 with --recall auto)",
    ),
    argument("--reserve", type=token_count, default=0, metavar="TOKENS", help="tokens to keep free"),
    argument("--cache", action="store_true", help="add cache marks (anthropic)"),
    examples=(
        "quire render agent.db --budget 8000",
        "quire render agent.db --format openai > messages.json",
        "quire render agent.db --format anthropic --cache --json | jq .tokens",
    ),
    about="The formats openai, anthropic and responses print what a request takes.",
)
def run_render(options: argparse.Namespace, out: Output) -> None:
    if options.cache and options.format != "anthropic":
        raise InvalidValue(f"--cache is for --format anthropic, not for {options.format}.")
    with open_context(options) as context:
        view = context.render(
            max_tokens=options.budget,
            preview=True,
            recall=options.recall,
            recall_floor=options.recall_floor,
            reserve=options.reserve,
        )
    messages = _request_values(view, options)
    if out.json:
        out.value({**pick(view, "seq", "tokens", "budget"), "format": options.format, **messages})
    elif options.format == "text":
        _print_text(view, out)
    else:
        out.value(messages if options.format == "anthropic" else next(iter(messages.values())))


def _request_values(view: quire.View, options: argparse.Namespace) -> Values:
    """Return the view in the chosen format, under the names that a request has for it."""
    if options.format == "anthropic":
        return view.anthropic(cache=options.cache)
    if options.format == "responses":
        return {"input": view.responses()}
    return {"messages": view.openai()}


def _print_text(view: quire.View, out: Output) -> None:
    """Print the messages. Their texts are indented: only quire's own lines begin at the margin."""
    for message in view.messages:
        answered = f" {clean_line(message.tool_call_id)}" if message.tool_call_id else ""
        out.line(out.paint.bold(f"── {message.role}") + answered)
        if message.text:
            out.line(indent_lines(out.safe(message.text)))
        for call in message.tool_calls:
            called = clean_line(f"{call.name}({out.safe(call.arguments)})")
            out.line(f"{out.paint.cyan(f'call {clean_line(call.id)}')}: {called}")
    out.note(_size(view))


@command(
    *PAGE,
    BUDGET,
    examples=("quire why agent.db usr-7",),
)
def run_why(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        view = context.render(max_tokens=options.budget, preview=True)
        why = context.why(options.index, view)
        name = context.pages.get_page(options.index).name
    if out.json:
        out.value(why)
        return
    facts = [
        ("page", f"{why.index} {name}"),
        ("shown", why.shown),
        ("because", why.rule),
        ("tokens", f"{why.tokens:,}"),
    ]
    if why.call:
        facts.append(("to change", CommandWording(options).command_of_call(why.call)))
    out.facts(facts)
