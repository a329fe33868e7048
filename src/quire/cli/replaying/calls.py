"""The model calls of a recorded conversation, one after the other, as they would be made with a context."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire import Context, Message, View
from quire.cli.grid import draw_bar
from quire.cli.replaying.counting import Counted
from quire.cli.replaying.sliding import SlidingWindow, Window
from quire.cli.replaying.stage import Stage
from quire.cli.width import cut
from quire.view.parts import Folded

HEAD = "call turn   tokens  cached  lines  F folded, E exchanges; CAPITALS: cached"
_FIXED = 37
"""The columns of a call's line beside the bar and what the assistant did."""
_BAR = 32


class Call(NamedTuple):
    """One model call: its number and turn, what is sent by either side, what came before it, and what came back."""

    number: int
    turn: int
    view: View
    window: Window
    before: Message | None
    reply: Message


def play(context: Context, prompt: Message | None, messages: Sequence[Message]) -> Iterator[Call]:
    """Play messages into a context, with one view for every message of the assistant's."""
    sliding = SlidingWindow(prompt, context.budget, Counted())
    if prompt is not None:
        context.add(prompt)
    number = turn = 0
    before: Message | None = None
    for message in messages:
        turn += message.role == "user"
        if message.role == "assistant":
            number += 1
            yield Call(number, turn, context.render(), sliding.render(), before, message)
        context.add(message)
        sliding.add(message)
        before = message


def show_call(stage: Stage, call: Call) -> None:
    """A fold if there was one, and one line for the call: the view it sends, and what came back."""
    paint, view = stage.paint, call.view
    if view.fold is not None:
        stage.beat(paint.bold(paint.blue(cut(f"── {_folded(view.fold)}", stage.columns))))
    lines = sum(page.granularity == "line" for page in view.pages)
    share = f"{100 * view.shared_prefix // max(1, view.tokens):>3} %"
    room = max(2, stage.columns - _FIXED)
    cells = min(_BAR, room // 2)
    bar = draw_bar(view, cells, paint)
    said = ", ".join(f"{made.name}()" for made in call.reply.tool_calls) or " ".join(call.reply.text.split())
    shown = paint.dim(cut(said, room - cells))
    stage.beat(f"{call.number:>4} {call.turn:>4}  {view.tokens:>7,} {share:>7} {lines:>6}  {bar}  {shown}")


def _folded(fold: Folded) -> str:
    facts = fold.account
    return (
        f"folded {fold.exchanges} exchanges, saved {fold.saved:,};"
        f" facts: {facts.kept} kept, {facts.reachable} reachable, {facts.lost} lost"
    )
