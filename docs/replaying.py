"""Draws docs/images/replay.svg, the costs of the demo's conversation under five budgets: `python -m docs.replaying`."""

from pathlib import Path

from quire.cli.commands.demo import load_conversation
from quire.cli.replay.pricing import Rates
from quire.cli.replay.recordings import Recording, RecordingSet
from quire.cli.replay.report import draw_plot
from quire.cli.replay.simulation import simulate
from quire.cli.replay.strategies import select_strategies

PICTURE = Path(__file__).parent / "images" / "replay.svg"
BUDGETS = (1_000, 1_500, 2_000, 3_000, 4_000)


def draw() -> str:
    """Simulate every strategy and return the plot."""
    talk = load_conversation()
    recordings = RecordingSet([Recording("demo", talk.prompt, talk.messages)], 0)
    simulation = simulate(recordings, select_strategies(None), BUDGETS, Rates())
    return draw_plot(simulation, f"A coding agent's session: {recordings.calls} model calls")


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
