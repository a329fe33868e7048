"""A program that writes to a context and renders it, beside others that do the same. `test_writers.py` runs it.

    view_writers.py URL SEED STEPS

It prints the sizes of its views as JSON: for each, its tokens, and the tokens of its parts.
"""

import json
import sys
from random import Random

import quire
from quire import Busy, Conflict, EstimateCounter

BUDGET = 1_500
CONTEXT = "shared"
_WORDS = ["flight", "seat", "window", "price", "Seattle", "北京", "order", "ticket", "refund", "HAT136"]


def run(url: str, seed: int, steps: int) -> list[tuple[int, int]]:
    """Make random writes, with a view after most of them. Return the sizes of the views."""
    chance, sizes = Random(seed), []

    def text(most: int) -> str:
        return " ".join(chance.choice(_WORDS) for _ in range(chance.randrange(5, most)))

    with quire.open(url, CONTEXT, budget=BUDGET, counter=EstimateCounter()) as ctx:
        _ready()
        notes: dict[int, str] = {}
        for _ in range(steps):
            kind = chance.randrange(6)
            try:
                match kind:
                    case 0 | 1:
                        ctx.user(text(150))
                    case 2:
                        ctx.assistant(text(150))
                    case 3 | 4:  # a note of the developer, a note of the agent
                        pages = ctx.pages if kind == 3 else ctx.agent
                        if kind in notes:
                            pages.set_detail(notes[kind], text(200))
                        else:
                            notes[kind] = pages.create_detail_page(f"Note {seed}", text(8), text(200), "mem-0")
                    case _:
                        ctx.refresh()
            except (Conflict, Busy):
                ctx.refresh()
            if chance.random() < 0.6:
                view = ctx.render()
                sizes.append((view.tokens, sum(part.tokens for part in view.parts)))
    return sizes


def _ready() -> None:
    """Wait for the other programs."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
