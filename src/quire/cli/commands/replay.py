"""The price of recorded conversations: played call by call under budgets, with quire and as others would."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import quire
from quire.cli.command import Command
from quire.cli.commands.importing import add_conversation, number_of
from quire.cli.opening import tokens
from quire.cli.out import Out
from quire.cli.progress import Progress
from quire.cli.replaying.calls import HEAD, Call, play, show_call
from quire.cli.replaying.life import Life, live
from quire.cli.replaying.plot import check_plot, draw_life, write_plot
from quire.cli.replaying.rates import Rates, parse_rates
from quire.cli.replaying.recorded import Recorded, Recording, joined, read_recording
from quire.cli.replaying.refusals import refusing
from quire.cli.replaying.report import fitted, head, legend, rows, sums_of, title, values_of
from quire.cli.replaying.stage import Stage
from quire.cli.replaying.strategies import KINDS, Kind, chosen
from quire.cli.replaying.tally import Tally
from quire.cli.values import Values
from quire.cli.width import cut
from quire.errors import InvalidValue

_BUDGETS = "4000,8000,16000,32000"


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", nargs="+", help="JSON or JSON Lines as import takes it, or a store; - is standard input"
    )
    parser.add_argument(
        "-c", "--context", metavar="NAME", help="of a store: the context (default: 'default', or the only one)"
    )
    parser.add_argument(
        "-b",
        "--budget",
        metavar="TOKENS",
        default=_BUDGETS,
        help="one, or several: 4k,8k (default: %(default)s)",
    )
    add_conversation(parser, "one of the conversations in the files, from 1 (default: all)")
    parser.add_argument(
        "--joined", action="store_true", help="all conversations as one long one, under the first prompt"
    )
    parser.add_argument(
        "--strategies", metavar="NAMES", help=f"compare with these alone, of {', '.join(list(KINDS)[1:])}"
    )
    parser.add_argument(
        "--price", metavar="PRICE", help="what a million input tokens cost, or INPUT,CACHED,OUTPUT such as 3,0.3,15"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw cost, cached share and reach over the budgets (SVG)")
    parser.add_argument("--title", metavar="TEXT", help="the plot's title (default: the files and the model calls)")


def _replay(options: argparse.Namespace, out: Out) -> None:
    budgets, kinds, rates = _budgets(options.budget), chosen(options.strategies), parse_rates(options.price)
    plot = None if options.plot is None else Path(options.plot)
    if plot is not None:
        check_plot(plot)
    elif options.title is not None:
        raise InvalidValue(f"title is {options.title!r}, but there is no plot; --plot FILE draws one.")
    number = number_of(options.conversation)
    with Progress("Reading") as progress:
        recording = read_recording(
            options.file, number, lambda done: progress.at(done, "conversations"), context=options.context
        )
    if options.joined:
        recording = joined(recording)
    alone = recording.conversations[0] if len(recording.conversations) == len(budgets) == 1 else None
    sums = None if alone is None else _show_calls(alone, budgets[0], rates, out)
    life = _lived(recording, kinds, budgets, rates)
    if plot is not None:  # before anything is printed: whoever reads may stop reading
        write_plot(plot, draw_life(life, options.title or _title(options.file, recording)))
    if out.json:
        _print_values(recording, life, sums, out)
    else:
        _print(recording, life, rates, out)
    if plot is not None:
        out.note(f"plotted in {plot}")


def _title(sources: Sequence[str], recording: Recording) -> str:
    names = ", ".join("standard input" if source == "-" else Path(source).name for source in sources)
    return f"{cut(names, 40)}: {recording.calls:,} model calls"


def _budgets(text: str) -> list[int]:
    """The budgets of a list, the smallest first. Raises `InvalidValue`."""
    try:
        budgets = {tokens(word) for word in text.split(",")}
    except argparse.ArgumentTypeError:
        budgets = {0}
    if min(budgets) < 1:
        raise InvalidValue(f"budget is {text!r}; tokens above 0 are needed, such as 8000, 8k or {_BUDGETS}.")
    return sorted(budgets)


def _lived(recording: Recording, kinds: Sequence[Kind], budgets: Sequence[int], rates: Rates) -> Life:
    """The life, with a line of progress. Raises `IrreducibleFloor` where no budget is large enough."""
    with Progress("Replaying", recording.calls * len(kinds) * len(budgets)) as progress:
        life = live(recording, kinds, budgets, rates, lambda done: progress.at(done, "model calls"))
    if not life.lived:
        raise life.refused[budgets[-1]]
    return life


def _show_calls(recorded: Recorded, budget: int, rates: Rates, out: Out) -> Values:
    """Show one conversation call by call beside a sliding window; the sums of both, for programs."""
    ours, theirs = Tally(rates), Tally(rates)
    stage = Stage(out.paint, fast=True)
    with quire.open("memory:", budget=budget) as context:
        if not out.json:
            stage.line(out.paint.dim(cut(HEAD, stage.columns)))
        for call in play(context, recorded.prompt, recorded.messages):
            ours.count(call.view.tokens, call.view.shared_prefix, refusing(call.view.messages))
            theirs.count(call.window.tokens, call.window.shared, refusing(call.window.messages))
            if out.json:
                out.value(_call_values(call, rates))
            else:
                show_call(stage, call)
    return {"quire": sums_of(ours), "sliding_window": sums_of(theirs)}


def _print(recording: Recording, life: Life, rates: Rates, out: Out) -> None:
    out.line(f"\n{out.paint.bold(title(recording))}")
    heads = head(rates)
    tables = {budget: list(rows(life.at(budget))) for budget in sorted({one.budget for one in life.lived})}
    places = fitted(heads, list(tables.values()), out.columns)
    for budget, table in tables.items():
        out.line(f"\n{out.paint.bold(f'at a budget of {budget:,} tokens')}")
        kept = [[line[place] for place in places] for line in table]
        out.table([heads[place] for place in places], kept, right=range(1, len(places)))
    for budget, error in life.refused.items():
        out.line(f"\n{out.paint.bold(f'at a budget of {budget:,} tokens')}")
        out.line(f"   {out.paint.yellow('too small')}: {out.safe(str(error))}")
    out.line()
    left = [name for place, name in enumerate(heads) if place not in places]
    notes = [*legend(rates, life), *([f"left out, for want of room: {', '.join(left)}"] if left else [])]
    for line in (line for note in notes for line in wrap(note, out.columns)):
        out.line(out.paint.dim(line))


def _print_values(recording: Recording, life: Life, sums: Values | None, out: Out) -> None:
    strategies = [values_of(one) for one in life.lived]
    if sums is not None:
        out.value({**sums, "strategies": strategies})
        return
    for values in strategies:
        out.value(values)
    out.value(
        {
            "conversations": len(recording.conversations),
            "messages": recording.messages,
            "calls": recording.calls,
            "too_small": sorted(life.refused),
        }
    )


def _call_values(call: Call, rates: Rates) -> Values:
    view, fold = call.view, call.view.fold
    return {
        "call": call.number,
        "turn": call.turn,
        "tokens": view.tokens,
        "budget": view.budget,
        "cached": view.shared_prefix,
        "cost": view.cost(rates.price),
        "why": view.bill().why,
        "folded": None if fold is None else {"exchanges": fold.exchanges, "saved": fold.saved},
        "sliding_window": {"tokens": call.window.tokens, "cached": call.window.shared},
    }


COMMANDS = {
    "replay": Command(
        _replay,
        _add,
        (
            "quire replay session.jsonl",
            "quire replay session.jsonl --budget 16000",
            "quire replay agent.db --context support-42",
            "quire replay runs/*.jsonl --joined --price 3,0.3,15 --plot life.svg",
            "quire replay runs.jsonl.gz --conversation 3 --budget 8000 --json | jq -s 'map(.tokens)'",
        ),
        "For every budget there is a table: what quire and what others send, what of it the prompt cache has, what that"
        " costs, what a request takes to make up, which requests break a rule or the budget, and what can still be"
        " reached. One conversation at one budget is also shown call by call. Nothing is kept, no model is called.",
    ),
}
