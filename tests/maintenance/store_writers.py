"""A program that changes a store in all ways, beside others that do the same. `test_beside_writers.py` runs it.

    store_writers.py URL SEED

It writes until its input ends. It prints the number of its changes, and every error that it does not expect.
"""

import json
import sys
import traceback
from collections import Counter
from random import Random
from select import select

from quire import (
    Busy,
    Conflict,
    Context,
    EstimateCounter,
    InvalidOperation,
    IrreducibleFloor,
    Library,
    NoSuchContext,
    NoSuchPage,
    ToolCall,
)

SHARED = "shared"
_WORDS = ["flight", "seat", "window", "price", "Seattle", "北京", "order", "ticket", "refund", "HAT136"]
_EXPECTED = (Conflict, Busy, InvalidOperation, IrreducibleFloor, NoSuchContext, NoSuchPage)


class Writer:
    """One writer: a context that it shares with others, one of its own, and forks and contexts that come and go."""

    def __init__(self, url: str, seed: int) -> None:
        self.library = Library(url)
        self.chance = Random(seed)
        self.seed = seed
        self.made = 0
        self.contexts = [self._open(SHARED), self._open(f"own-{seed}")]
        self.done: Counter[str] = Counter()

    def _open(self, name: str) -> Context:
        return self.library.open(name, budget=2_000, counter=EstimateCounter())

    def text(self, most: int) -> str:
        return " ".join(self.chance.choice(_WORDS) for _ in range(self.chance.randrange(3, most)))

    def step(self) -> None:
        """Make one change of any kind."""
        ctx = self.chance.choice(self.contexts)
        kinds = [self.speak, self.speak, self.speak, self.write, self.write, self.change, self.edit, self.render]
        act = self.chance.choice([*kinds, self.search, self.remove, self.come_and_go])
        try:
            act(ctx)
            self.done[act.__name__] += 1
        except _EXPECTED:
            ctx.refresh()

    def speak(self, ctx: Context) -> None:
        if waiting := ctx.pending_calls():
            ctx.tool_result(waiting[0].id, self.text(60))
        elif self.chance.random() < 0.5:
            ctx.user(self.text(60))
        else:
            calls = [ToolCall(f"call {self.chance.random()}", "look")] if self.chance.random() < 0.5 else None
            ctx.assistant(self.text(60), calls)

    def write(self, ctx: Context) -> None:
        most = 9_000 if self.chance.random() < 0.05 else 100  # the large ones reach the chunks of S3
        ctx.pages.create_detail_page(f"Note {self.seed}", self.text(6), self.text(most), "mem-0")

    def change(self, ctx: Context) -> None:
        pages = ctx.pages
        index = self.chance.choice([page.index for page in pages.children("mem-0")] or ["mem-0"])
        if self.chance.random() < 0.3:
            pages.update_page(index, description=self.text(6), detail=self.text(80))
        else:
            self.chance.choice([pages.pin, pages.unpin, pages.hide, pages.expand, pages.archive])(index)

    def edit(self, ctx: Context) -> None:
        count = len(ctx.messages(all=True))
        match self.chance.randrange(6):
            case 0 if count:
                ctx.conversation.delete(self.chance.randrange(count))
            case 1 if count > 1:
                start = self.chance.randrange(count - 1)
                ctx.conversation.compress([start, start + 1])
            case 2:
                ctx.conversation.cleanup()
            case 3:
                ctx.undo(ctx.seq)
            case 4:
                with ctx.temporary():
                    ctx.user(self.text(20))
            case _:
                ctx.checkpoint(f"point {self.chance.random()}")

    def render(self, ctx: Context) -> None:
        ctx.render()

    def search(self, ctx: Context) -> None:
        ctx.find(self.chance.choice(_WORDS))

    def remove(self, ctx: Context) -> None:
        pages = [page.index for page in ctx.pages.children("mem-0")]
        if len(pages) > 30:  # the store does not grow without end
            for index in pages[:10]:
                ctx.pages.remove_page(index)
        if pages and self.chance.random() < 0.1:
            ctx.pages.purge(self.chance.choice(pages))

    def come_and_go(self, ctx: Context) -> None:
        """Make a fork or a context, write to it, search it, and delete it most of the time."""
        self.made += 1
        name = f"{self.seed}-{self.made}"
        other = ctx.fork(name) if self.chance.random() < 0.5 else self._open(name)
        other.pages.create_detail_page("Large", "", self.text(20_000), "mem-0")
        other.user(self.text(30))
        other.find("seat")
        if self.chance.random() < 0.9:
            self.library.delete(name)


def run(url: str, seed: int) -> dict[str, int]:
    """Write until the input ends. Return the number of changes of each kind."""
    writer = Writer(url, seed)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not select([sys.stdin], [], [], 0)[0]:
        writer.step()
    return writer.done


if __name__ == "__main__":
    try:
        sys.stdout.write(json.dumps(run(sys.argv[1], int(sys.argv[2]))))
    except Exception:
        traceback.print_exc()
        raise SystemExit(1) from None
