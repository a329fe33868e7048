"""Replaying the conversation: a view at every model call, and beside it what a sliding window would send."""

from typing import NamedTuple

from quire import Context, Message, View, VocabularyCounter
from quire.cli.demo.measure import Reach, Side, facts_of
from quire.cli.demo.sliding import SlidingWindow, Window
from quire.cli.demo.stage import Stage
from quire.cli.demo.talk import MESSAGES, SYSTEM, asked_in
from quire.cli.grid import draw_bar
from quire.cli.width import cut
from quire.view.folded import Folded

_FIXED = 37
"""The columns of a call's line beside the bar and what the assistant did."""
_BAR = 32
_HEAD = "call turn   tokens  cached  lines  F folded, E exchanges; CAPITALS: cached"


class Replay(NamedTuple):
    """A replayed conversation: the last view, both sides, and what they reach of its first messages at the end."""

    view: View
    ours: Side
    theirs: Side
    beginning: int
    our_facts: Reach
    their_facts: Reach


def replay(context: Context, stage: Stage) -> Replay:
    """Play the conversation into a context, with one view for every message of the assistant's."""
    sliding = SlidingWindow(Message(role="system", content=SYSTEM), context.budget, VocabularyCounter().count)
    ours, theirs = Side(context), Side()
    context.system(SYSTEM)
    view, window, turn = context.render(preview=True), Window((), 0, 0), 0
    stage.line(stage.paint.dim(cut(_HEAD, stage.columns)))
    for before, message in zip((None, *MESSAGES), MESSAGES, strict=False):
        turn += message.role == "user"
        if message.role == "assistant":
            asked = asked_in(before) if before else []
            view, window = context.render(), sliding.render()
            ours.call(view.messages, view.tokens, view.shared_prefix, asked)
            theirs.call(window.messages, window.tokens, window.shared, asked)
            _show_call(stage, f"{ours.calls:>4} {turn:>4}", view, message)
        context.add(message)
        sliding.add(message)
    beginning = len(MESSAGES) // 3
    known = [(fact, fact) for fact in facts_of(MESSAGES[:beginning])]
    our_facts, their_facts = ours.reach(known, view.messages), theirs.reach(known, window.messages)
    return Replay(view, ours, theirs, beginning, our_facts, their_facts)


def _show_call(stage: Stage, start: str, view: View, message: Message) -> None:
    """A fold if there was one, and one line for the call: the view it sends, and what came back."""
    paint = stage.paint
    if view.fold is not None:
        stage.beat(paint.bold(paint.blue(cut(f"── {_folded(view.fold)}", stage.columns))))
    lines = sum(page.granularity == "line" for page in view.pages)
    share = f"{100 * view.shared_prefix // max(1, view.tokens):>3} %"
    room = max(2, stage.columns - _FIXED)
    cells = min(_BAR, room // 2)
    bar = draw_bar(view, cells, paint)
    said = ", ".join(f"{call.name}()" for call in message.tool_calls) or message.text.replace("\n", " ")
    shown = paint.dim(cut(said, room - cells))
    stage.beat(f"{start}  {view.tokens:>7,} {share:>7} {lines:>6}  {bar}  {shown}")


def _folded(fold: Folded) -> str:
    facts = fold.account
    return (
        f"folded {fold.exchanges} exchanges, saved {fold.saved:,};"
        f" facts: {facts.kept} kept, {facts.reachable} reachable, {facts.lost} lost"
    )
