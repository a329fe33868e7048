"""The demo: an agent's conversation replayed at a small budget in a fresh SQLite file. Nothing here is pretended."""

from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import quire
from quire.cli.demo.after import look_back, undo_fold
from quire.cli.demo.replay import Replay, replay
from quire.cli.demo.rest import look_again, try_next, try_out
from quire.cli.demo.table import draw_table
from quire.cli.demo.talk import MESSAGES, QUESTIONS, TITLE
from quire.cli.demo.window import show_window
from quire.cli.grid import draw_grid
from quire.cli.paint import Paint
from quire.cli.replaying.stage import Stage
from quire.cli.tree import draw_tree

BUDGET = 2_000
NAME = "coding-agent"
MOST_CHILDREN = 6


class Played(NamedTuple):
    """A demo that was played: the file it left, and what was measured."""

    path: Path
    replay: Replay


def run_demo(paint: Paint, *, fast: bool = False, quiet: bool = False) -> Played:
    """Replay, show what the model sees at the end, look back, compare, and show what else there is."""
    stage = Stage(paint, fast=fast, out=StringIO() if quiet else None)
    path = Path(mkdtemp(prefix="quire-demo-")) / "agent.db"
    with quire.open(path, NAME, budget=BUDGET) as context:
        stage.scene(f"{TITLE}: {len(MESSAGES)} messages and a prompt in {BUDGET:,} tokens")
        done = replay(context, stage)

        stage.scene("What the last call sent, and where the rest of the book is")
        for line in draw_grid(done.view, paint, stage.columns):
            stage.line(line)
        bill = done.view.bill()
        stage.words(f"bill(): {bill.read:,} from the cache, {bill.plain:,} plain, costs {bill.cost:,.0f}. {bill.why}")
        for line in draw_tree(context.pages, paint, stage.columns, closed=1, most=MOST_CHILDREN):
            stage.line(line)

        stage.scene("Nothing is gone")
        now = context.render(preview=True).tokens
        stage.words(f"with the reply to the last call, the view has {now:,} tokens now; it had {done.view.tokens:,}")
        look_back(context, QUESTIONS[2], stage)
        undo_fold(context, stage)

        stage.scene("The same calls with a sliding window: the newest messages that fit")
        for line in draw_table(done, paint):
            stage.line(line)

        stage.scene("A live window: the model's todo list")
        show_window(context, stage)

        stage.scene("What else it does")
        try_out(context, stage)
    with quire.open(path, NAME, budget=BUDGET) as context:
        stage.scene("Reopened from disk")
        look_again(context, stage)
    stage.title("Try next")
    try_next(path, NAME, BUDGET, stage)
    return Played(path, done)
