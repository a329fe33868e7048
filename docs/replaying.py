"""Draws what the demo's conversation costs under five budgets, for docs/howto/replay.md: `python -m docs.replaying`."""

from pathlib import Path

from quire import Message
from quire.cli.demo.talk import MESSAGES, SYSTEM
from quire.cli.replaying.life import Life, live
from quire.cli.replaying.plot import draw_life
from quire.cli.replaying.rates import Rates
from quire.cli.replaying.recorded import Recorded, Recording
from quire.cli.replaying.strategies import chosen

PICTURE = Path(__file__).parent / "images" / "replay.svg"
BUDGETS = (1_000, 1_500, 2_000, 3_000, 4_000)


def demo() -> Recording:
    """The conversation of the demo, as one that was recorded."""
    return Recording([Recorded("demo", Message(role="system", content=SYSTEM), MESSAGES)], 0)


def lived() -> Life:
    """Its life, with every strategy."""
    return live(demo(), chosen(None), BUDGETS, Rates())


def draw() -> str:
    """The picture."""
    return draw_life(lived(), f"A coding agent's session: {demo().calls} model calls")


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
