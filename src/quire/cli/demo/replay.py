"""Replaying the bundled conversation, with what is asked again near its end."""

from typing import NamedTuple

from quire import Context, Message, View
from quire.cli.demo.measure import Side
from quire.cli.demo.talk import MESSAGES, SYSTEM, asked_in
from quire.cli.replaying.calls import HEAD, play, show_call
from quire.cli.replaying.facts import Reach, facts_of
from quire.cli.replaying.sliding import Window
from quire.cli.replaying.stage import Stage
from quire.cli.width import cut


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
    ours, theirs = Side(context), Side()
    view, window = context.render(preview=True), Window((), 0, 0)
    stage.line(stage.paint.dim(cut(HEAD, stage.columns)))
    for call in play(context, Message(role="system", content=SYSTEM), MESSAGES):
        asked = asked_in(call.before) if call.before else []
        view, window = call.view, call.window
        ours.call(view.messages, view.tokens, view.shared_prefix, asked)
        theirs.call(window.messages, window.tokens, window.shared, asked)
        show_call(stage, call)
    beginning = len(MESSAGES) // 3
    known = [(fact, fact) for fact in facts_of(MESSAGES[:beginning])]
    our_facts, their_facts = ours.reach(known, view.messages), theirs.reach(known, window.messages)
    return Replay(view, ours, theirs, beginning, our_facts, their_facts)
