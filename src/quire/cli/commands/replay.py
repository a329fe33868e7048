"""Playing a recorded conversation under a budget: what every model call would send, and what it would cost."""

import argparse

import quire
from quire import Message
from quire.cli.command import Command
from quire.cli.commands.importing import add_conversation, number_of
from quire.cli.histories import Conversation, read_history
from quire.cli.opening import add_budget
from quire.cli.out import Out
from quire.cli.replaying.calls import HEAD, Call, play, show_call
from quire.cli.replaying.stage import Stage
from quire.cli.replaying.table import compared, draw_rows
from quire.cli.replaying.tally import Tally
from quire.cli.values import Values
from quire.cli.width import cut
from quire.errors import InvalidValue

_BUDGET = 8_000


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="JSON or JSON Lines as import takes it; - is standard input")
    add_budget(parser, _BUDGET)
    add_conversation(parser, "one of the conversations in the file, from 1")


def _replay(options: argparse.Namespace, out: Out) -> None:
    history = read_history(options.file)
    prompt, messages = _mended(history.chosen(number_of(options.conversation)))
    if not any(message.role == "assistant" for message in messages):
        raise InvalidValue(f"{history.source!r} holds no message of an assistant's, and so no model call to replay.")
    ours, theirs = Tally(), Tally()
    stage = Stage(out.paint, fast=True)
    with quire.open("memory:", budget=options.budget) as context:
        if not out.json:
            stage.line(out.paint.dim(cut(HEAD, stage.columns)))
        for call in play(context, prompt, messages):
            ours.count(call.view.messages, call.view.tokens, call.view.shared_prefix)
            theirs.count(call.window.messages, call.window.tokens, call.window.shared)
            if out.json:
                out.value(_values(call))
            else:
                show_call(stage, call)
    if out.json:
        out.value({"quire": _sums(ours), "sliding_window": _sums(theirs)})
        return
    stage.title(f"{len(messages):,} messages at a budget of {options.budget:,} tokens")
    for line in draw_rows(list(compared(ours, theirs)), out.paint):
        stage.line(line)


def _mended(conversation: Conversation) -> tuple[Message | None, list[Message]]:
    """The prompt and the messages of a conversation, as a context that took it in has them."""
    with quire.open("memory:") as context:
        context.import_messages(conversation.messages)
        messages = list(context.messages())
    if messages and messages[0].role == "system":
        return messages[0], messages[1:]
    return None, messages


def _values(call: Call) -> Values:
    view, fold = call.view, call.view.fold
    return {
        "call": call.number,
        "turn": call.turn,
        "tokens": view.tokens,
        "budget": view.budget,
        "cached": view.shared_prefix,
        "cost": view.cost(),
        "why": view.bill().why,
        "folded": None if fold is None else {"exchanges": fold.exchanges, "saved": fold.saved},
        "sliding_window": {"tokens": call.window.tokens, "cached": call.window.shared},
    }


def _sums(tally: Tally) -> Values:
    return {
        "calls": tally.calls,
        "tokens": tally.tokens,
        "cached": tally.shared,
        "cost": tally.cost,
        "illegal": tally.broken,
    }


COMMANDS = {
    "replay": Command(
        _replay,
        _add,
        (
            "quire replay session.jsonl --budget 16000",
            "quire replay runs.jsonl.gz --conversation 3 --json | jq -s 'map(.tokens)'",
        ),
        "Beside it is what a sliding window over the newest messages would send. Nothing is kept. The cost is in plain"
        " tokens: one read from the prompt cache costs a tenth.",
    ),
}
