"""The view: as a map, as what a model would get, and why a page stands in it as it does."""

import argparse

import quire
from quire.cli.command import Command
from quire.cli.grid import draw_grid
from quire.cli.opening import add_budget, add_context, context_of, tokens
from quire.cli.out import Out
from quire.cli.speech import spoken
from quire.cli.values import Values, view_values
from quire.cli.words import counted
from quire.view.options import DEFAULT_BUDGET

FORMATS = ("text", "openai", "anthropic", "responses")


def _add_view(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    add_budget(parser)


def _view(options: argparse.Namespace, out: Out) -> None:
    with context_of(options) as context:
        view = context.render(max_tokens=options.budget, preview=True)
    if out.json:
        out.value(view_values(view))
        return
    _tell_budget(options, out)
    out.line(_sizes(view))
    for line in draw_grid(view, out.paint, out.columns):
        out.line(line)


def _tell_budget(options: argparse.Namespace, out: Out) -> None:
    """Say that nobody set the budget: the context may be used with another."""
    if options.budget == DEFAULT_BUDGET:
        out.note(f"at the usual budget, {DEFAULT_BUDGET:,} tokens; --budget sets the one you use")


def _sizes(view: quire.View) -> str:
    return f"{view.tokens:,} of {view.budget:,} tokens, {counted(len(view.messages), 'message')}"


def _add_render(parser: argparse.ArgumentParser) -> None:
    _add_view(parser)
    parser.add_argument("-f", "--format", choices=FORMATS, default="text", help="in whose form (default: %(default)s)")
    parser.add_argument(
        "--recall",
        type=float,
        metavar="SHARE",
        help="bring back what matters for the last user message, in at most this share of the budget, such as 0.25",
    )
    parser.add_argument("--reserve", type=tokens, default=0, metavar="TOKENS", help="keep so many free")
    parser.add_argument("--cache", action="store_true", help="with cache marks (anthropic)")


def _render(options: argparse.Namespace, out: Out) -> None:
    with context_of(options) as context:
        view = context.render(max_tokens=options.budget, preview=True, recall=options.recall, reserve=options.reserve)
    messages = _written(view, options)
    _tell_budget(options, out)
    if out.json:
        figures = {"seq": view.seq, "tokens": view.tokens, "budget": view.budget, "format": options.format}
        out.value({**figures, **messages})
    elif options.format == "text":
        _print_text(view, out)
    else:
        out.value(messages if options.format == "anthropic" else next(iter(messages.values())))


def _written(view: quire.View, options: argparse.Namespace) -> Values:
    """The view in the chosen form, under the names that a request has for it."""
    if options.format == "anthropic":
        return dict(view.anthropic(cache=options.cache))
    if options.format == "responses":
        return {"input": view.responses()}
    return {"messages": view.openai()}


def _print_text(view: quire.View, out: Out) -> None:
    for message in view.messages:
        out.line(out.paint.bold(f"── {message.role}") + (f" {message.tool_call_id}" if message.tool_call_id else ""))
        if message.text:
            out.line(out.safe(message.text))
        for call in message.tool_calls:
            out.line(f"{out.paint.cyan(f'call {call.id}')}: {call.name}({out.safe(call.arguments)})")
    out.note(_sizes(view))


def _add_why(parser: argparse.ArgumentParser) -> None:
    _add_view(parser)
    parser.add_argument("index", metavar="PAGE", help="a page's index, such as usr-7")


def _why(options: argparse.Namespace, out: Out) -> None:
    with context_of(options) as context:
        view = context.render(max_tokens=options.budget, preview=True)
        why = context.why(options.index, view)
        name = context.pages.get_page(options.index).name
    if out.json:
        out.value(why)
        return
    _tell_budget(options, out)
    out.facts(
        [
            ("page", f"{why.index} {name}"),
            ("shown", why.shown),
            ("because", why.rule),
            ("tokens", f"{why.tokens:,}"),
            *([("to change", spoken(why.call, options))] if why.call else []),
        ]
    )


COMMANDS = {
    "view": Command(_view, _add_view, ("quire view agent.db --context support-42 --budget 8000",)),
    "render": Command(
        _render,
        _add_render,
        (
            "quire render agent.db --budget 8000",
            "quire render agent.db --format openai > messages.json",
            "quire render agent.db --format anthropic --cache --json | jq .tokens",
        ),
        "With a provider's form the output is what goes into a request.",
    ),
    "why": Command(_why, _add_why, ("quire why agent.db usr-7 --budget 8000",)),
}
