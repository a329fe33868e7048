"""The command replay: the cost of recorded conversations with quire and with other strategies."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import quire
from quire.cli.command import argument, command, token_count
from quire.cli.commands.imports import parse_conversation
from quire.cli.replay.pricing import CallTotals, Prefill, Rates, parse_rates, read_prefill
from quire.cli.replay.recordings import (
    Recording,
    RecordingSet,
    find_session_folders,
    join_recordings,
    list_session_files,
    read_recordings,
)
from quire.cli.replay.report import (
    CALL_HEAD,
    call_values,
    check_plot_path,
    describe_recordings,
    describe_usage,
    draw_plot,
    fit_columns,
    legend,
    prefill_table,
    print_call,
    run_values,
    table_head,
    table_rows,
    totals_values,
    write_plot,
)
from quire.cli.replay.simulation import Simulation, play_calls, refusing_providers, simulate
from quire.cli.replay.strategies import STRATEGIES, StrategyKind, select_strategies
from quire.cli.terminal import Narration, Output, Progress, Values, cut
from quire.errors import InvalidValue

_BUDGETS = "4000,8000,16000,32000"
_FOLDER_BUDGETS = "32000,64000,128000"
_FOLDER_STRATEGIES = "unmanaged,newest,summarise,compact"
"""What sessions of coding agents are compared with: everything, a window, and two kinds of summaries."""
_DEMO_BUDGETS = "1000,2000,4000"
_DAYS = 30


@command(
    argument(
        "file",
        metavar="FILE",
        nargs="*",
        help="a file that quire import reads, a folder of session files, or a store; - is standard input (default: your"
        " own sessions of Claude Code and Codex)",
    ),
    argument("-c", "--context", metavar="NAME", help="the context of a store (default: 'default', or the only one)"),
    argument(
        "-b",
        "--budget",
        metavar="TOKENS",
        help=f"one or more budgets, such as 4k,8k (default: {_BUDGETS}; for a folder {_FOLDER_BUDGETS})",
    ),
    argument(
        "--days",
        metavar="N",
        help=f"only session files of a folder that changed in the last N days (default: all; {_DAYS} for your own"
        " sessions)",
    ),
    argument("--conversation", metavar="N", help="replay only conversation N of the files, from 1 (default: all)"),
    argument("--joined", action="store_true", help="replay all conversations as one, with the prompt of the first"),
    argument(
        "--strategies",
        metavar="NAMES",
        help=f"compare only with these: {', '.join(list(STRATEGIES)[1:])} (default: all; for a folder"
        f" {_FOLDER_STRATEGIES})",
    ),
    argument(
        "--price",
        metavar="PRICE",
        help="the price of a million input tokens, or INPUT,CACHED,OUTPUT such as 3,0.3,15 (default: the price of the"
        " model that the sessions name most often, if quire knows it)",
    ),
    argument(
        "--prefill",
        metavar="FILE",
        help="measured prefill times (JSON): print the time to the first token of each strategy",
    ),
    argument("--plot", metavar="FILE", help="plot cost, cached share and facts over the budgets (SVG)"),
    argument("--title", metavar="TEXT", help="the title of the plot (default: file names and model calls)"),
    examples=(
        "quire replay",
        "quire replay ~/.claude/projects --days 30",
        "quire replay session.jsonl",
        "quire replay session.jsonl --budget 16000",
        "quire replay agent.db --context support-42",
        "quire replay runs/*.jsonl --joined --price 3,0.3,15 --plot life.svg",
        "quire replay runs.jsonl --prefill prefill.json",
        "quire replay runs.jsonl.gz --conversation 3 --budget 8000 --json | jq -s 'map(.tokens)'",
    ),
    about="For each budget it prints a table: the tokens that quire and other strategies send, the share from the"
    " prompt cache, the cost, the time to build a request, the requests that are illegal or over the budget, and the"
    " facts that are still reachable. For one conversation at one budget it also prints every call. Without FILE it"
    " replays your own sessions of the last month, or the conversation of quire demo if there are none. It stores"
    " nothing and calls no model.",
)
def run_replay(options: argparse.Namespace, out: Output) -> None:
    sources, days = _find_sources(options)
    kinds, budgets = _defaults(options, sources)
    rates = parse_rates(options.price)
    prefill = Prefill() if options.prefill is None else read_prefill(Path(options.prefill))
    plot = None if options.plot is None else Path(options.plot)
    if plot is not None:
        check_plot_path(plot)
    elif options.title is not None:
        raise InvalidValue(f"is {options.title!r}, but there is no plot; add --plot FILE.", argument="title")
    number = parse_conversation(options.conversation)
    if sources:
        with Progress("Reading") as progress:
            recordings = read_recordings(
                sources, number, lambda done: progress.at(done, "conversations"), context=options.context, days=days
            )
    else:
        recordings = _demo_recording(days, out)
    if options.joined:
        recordings = join_recordings(recordings)
    if options.price is None and recordings.usage.model is not None:
        from quire.server.gateway_ledger import find_price

        rates = rates._replace(million=find_price(recordings.usage.model))
    single = recordings.conversations[0] if len(recordings.conversations) == len(budgets) == 1 else None
    sums = None if single is None else _print_calls(single, budgets[0], rates, out)
    with Progress("Replaying", recordings.calls * len(kinds) * len(budgets)) as progress:
        simulation = simulate(recordings, kinds, budgets, rates, lambda done: progress.at(done, "model calls"), prefill)
    if not simulation.runs:
        raise simulation.too_small[budgets[-1]]
    if plot is not None:  # before anything is printed: a closed pipe ends the program
        write_plot(plot, draw_plot(simulation, options.title or _title(sources, recordings)))
    if out.json:
        _print_values(recordings, simulation, sums, out)
    else:
        _print_tables(recordings, simulation, rates, prefill, out)
    if plot is not None:
        out.note(f"plot written to {plot}")


def _find_sources(options: argparse.Namespace) -> tuple[Sequence[str], float | None]:
    """Return the sources and the days. Without a file, the sources are the folders with the user's sessions, if any."""
    days = _parse_days(options.days)
    if options.file:
        return options.file, days
    days = _DAYS if days is None else days
    return [str(folder) for folder in find_session_folders() if list_session_files(folder, days)], days


def _defaults(options: argparse.Namespace, sources: Sequence[str]) -> tuple[Sequence[StrategyKind], list[int]]:
    """Return the strategies and the budgets: those of the options, or the defaults for the sources."""
    folders = any(Path(source).is_dir() for source in sources)
    budgets = _FOLDER_BUDGETS if folders else _BUDGETS if sources else _DEMO_BUDGETS
    names = _FOLDER_STRATEGIES if folders or not sources else None
    given = options.budget
    return select_strategies(options.strategies or names), _parse_budgets(budgets if given is None else given)


def _demo_recording(days: float | None, out: Output) -> RecordingSet:
    from quire.cli.commands.demo import load_conversation

    out.note(f"no sessions of Claude Code or Codex from the last {days:g} days; this is the conversation of quire demo")
    talk = load_conversation()
    return RecordingSet([Recording("demo", talk.prompt, talk.messages)], 0)


def _parse_days(text: str | None) -> float | None:
    """Return a number of days. Raises `InvalidValue`."""
    try:
        days = None if text is None else float(text)
    except ValueError:
        days = 0.0
    if days is not None and not 0 < days < 1e5:
        raise InvalidValue(f"is {text!r}; a number of days above 0 is needed, such as 30.", argument="days")
    return days


def _title(sources: Sequence[str], recordings: RecordingSet) -> str:
    names = ", ".join("standard input" if source == "-" else Path(source).name for source in sources)
    return f"{cut(names, 40)}: {recordings.calls:,} model calls"


def _parse_budgets(text: str) -> list[int]:
    """Return the budgets of a list, smallest first. Raises `InvalidValue`."""
    try:
        budgets = {token_count(word) for word in text.split(",")}
    except argparse.ArgumentTypeError:
        budgets = {0}
    if min(budgets) < 1:
        fact = f"is {text!r}; tokens above 0 are needed, such as 8000, 8k or {_BUDGETS}."
        raise InvalidValue(fact, argument="budget")
    return sorted(budgets)


def _print_calls(recording: Recording, budget: int, rates: Rates, out: Output) -> Values:
    """Print the calls of one conversation, and return the totals of quire and a sliding window."""
    ours, theirs = CallTotals(rates), CallTotals(rates)
    narration = Narration(out.paint, fast=True)
    with quire.open("memory:", budget=budget) as context:
        if not out.json:
            narration.line(out.paint.dim(cut(CALL_HEAD, narration.columns)))
        for call in play_calls(context, recording.prompt, recording.messages):
            ours.count(call.view.tokens, call.view.shared_prefix, refusing_providers(call.view.messages))
            theirs.count(call.window.tokens, call.window.shared, refusing_providers(call.window.messages))
            if out.json:
                out.value(call_values(call, rates))
            else:
                print_call(narration, call)
    return {"quire": totals_values(ours), "sliding_window": totals_values(theirs)}


def _print_tables(
    recordings: RecordingSet, simulation: Simulation, rates: Rates, prefill: Prefill, out: Output
) -> None:
    out.line(f"\n{out.paint.bold(describe_recordings(recordings))}")
    if recordings.usage.calls:
        out.line(*wrap(describe_usage(recordings.usage, rates), out.columns))
    head = table_head(rates)
    tables = {budget: list(table_rows(simulation.at(budget))) for budget in sorted({r.budget for r in simulation.runs})}
    places = fit_columns(head, list(tables.values()), out.columns)
    for budget, table in tables.items():
        _print_budget(budget, out)
        cells = [[line[place] for place in places] for line in table]
        out.table([head[place] for place in places], cells, right=range(1, len(places)))
        if prefill.models:
            names, times = prefill_table(simulation.at(budget))
            out.line()
            out.table(names, times, right=range(1, len(names)))
    for budget, error in simulation.too_small.items():
        _print_budget(budget, out)
        out.line(f"   {out.paint.yellow('too small')}: {out.safe(error.fact)}")
    out.line()
    omitted = [name for place, name in enumerate(head) if place not in places]
    notes = [
        *legend(rates, simulation, prefill.device),
        *([f"columns that do not fit: {', '.join(omitted)}"] if omitted else []),
    ]
    for line in (line for note in notes for line in wrap(note, out.columns)):
        out.line(out.paint.dim(line))


def _print_budget(budget: int, out: Output) -> None:
    out.line(f"\n{out.paint.bold(f'at a budget of {budget:,} tokens')}")


def _print_values(recordings: RecordingSet, simulation: Simulation, sums: Values | None, out: Output) -> None:
    strategies = [run_values(run) for run in simulation.runs]
    if sums is not None:
        out.value({**sums, "strategies": strategies})
        return
    for values in strategies:
        out.value(values)
    out.value(
        {
            "conversations": len(recordings.conversations),
            "messages": recordings.messages,
            "calls": recordings.calls,
            "unread": recordings.unread,
            "recorded": {**recordings.usage._asdict(), "model": recordings.usage.model},
            "too_small": sorted(simulation.too_small),
        }
    )
