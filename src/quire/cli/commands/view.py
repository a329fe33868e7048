"""Commands that show the view: view, render, why."""

import argparse

import quire
from quire.cli.command import BUDGET, CONTEXT, PAGE, argument, command, open_context, token_count
from quire.cli.terminal import Output, Values, count_of, pick
from quire.cli.view_map import draw_map
from quire.cli.wording import CommandWording
from quire.model.text import clean_line, indent_lines

_FORMATS = ("text", "openai", "anthropic", "responses")


@command(
    *CONTEXT,
    BUDGET,
    examples=("quire view agent.db --context support-42", "quire view agent.db --budget 8000"),
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


def _size(view: quire.View) -> str:
    return f"{view.tokens:,} of {view.budget:,} tokens, {count_of(len(view.messages), 'message')}"


@command(
    *CONTEXT,
    BUDGET,
    argument("-f", "--format", choices=_FORMATS, default="text", help="output format (default: %(default)s)"),
    argument(
        "--recall",
        type=float,
        metavar="SHARE",
        help="recall pages that match the last user message, in at most this share of the budget, such as 0.25",
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
    with open_context(options) as context:
        view = context.render(max_tokens=options.budget, preview=True, recall=options.recall, reserve=options.reserve)
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
