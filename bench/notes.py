"""Notes outside the conversation: the cached share and the bill while an agent writes notes beside many others.

A recorded conversation of 200 turns is replayed with a view at every model call. There are 10,000 notes at the start,
and the agent writes five more in every turn. The same with all notes hidden in one line shows what the notes cost.
"""

import statistics
import time
from pathlib import Path

import quire
from bench.caching import CACHED
from bench.figures import Figure
from bench.traces import TRACES, conversation, system
from quire import Quota

NOTES = 10_000
TURNS = 200
NEW = 5
SIZES = {"2k": 2_000, "8k": 8_000}
LIMITS = {"2k": 387 / 335, "8k": 756 / 724}
"""The figures of the prototype: the bill of a call against the one with all notes hidden."""
_HALLS = ("boiler", "turbine", "pump", "valve", "tank", "filter")


def run(_: Path, pages: int) -> list[Figure]:
    """Return the figures of each budget, with the notes shown and hidden."""
    notes = min(NOTES, pages // 10)
    return [figure for size in SIZES for figure in _figures(size, notes)] if TRACES.exists() else []


def _figures(size: str, notes: int) -> list[Figure]:
    shown, hidden = (NotesReplay(SIZES[size], notes, hidden=hidden) for hidden in (False, True))
    name = f"{notes:,} notes, {NEW} new in each of {TURNS} turns, {size}"
    figures = []
    for played, label in ((shown, name), (hidden, f"{name}, all hidden")):
        note = f"{played.calls} calls, {played.folds} folds, mean view {played.tokens / played.calls:,.0f} tokens"
        fresh = 100 - 100 * played.shared / played.tokens
        figures.append(
            Figure(f"input tokens after the common prefix with the previous view, {label}", fresh, "%", note=note)
        )
        figures.append(Figure(f"bill of a call, {label}", played.bill, "tokens"))
    between = f"a view between folds takes {statistics.median(shown.seconds) * 1e3:.2f} ms"
    return [*figures, Figure(f"bill against all hidden, {name}", shown.bill / hidden.bill, "×", LIMITS[size], between)]


class NotesReplay:
    """One replay: its calls, their tokens, and those that the view before began with."""

    def __init__(self, budget: int, notes: int, *, hidden: bool) -> None:
        self.calls = self.tokens = self.shared = self.folds = 0
        self.seconds: list[float] = []
        self.ctx = quire.open("memory:", budget=budget, key="kestrel")
        self.ctx.system(system())
        self.author = self.ctx.as_agent(quota=Quota(pages=2 * NOTES))
        for number in range(notes):
            self.author.create_detail_page(*_note(number), "mem-0")
        if hidden:
            self.ctx.pages.hide("mem-0")
        self._play(notes)

    def _play(self, notes: int) -> None:
        turns = 0
        for message in conversation(20 * TURNS):
            turns += message["role"] == "user"
            if turns > TURNS:
                break
            self.ctx.add(message)
            if message["role"] == "user":
                for number in range(NEW):
                    self.author.create_detail_page(*_note(notes + turns * NEW + number), "mem-0")
            if message["role"] != "assistant":
                self._see()

    def _see(self) -> None:
        start = time.perf_counter()
        view = self.ctx.render()
        if view.fold is None:
            self.seconds.append(time.perf_counter() - start)
        else:
            self.folds += 1
        self.calls += 1
        self.tokens += view.tokens
        self.shared += view.shared_prefix

    @property
    def bill(self) -> float:
        """The mean cost of a call, in tokens that are not cached."""
        return (self.tokens - (1 - CACHED) * self.shared) / self.calls


def _note(number: int) -> tuple[str, str, str]:
    """Return the name, summary and text of a note."""
    hall = _HALLS[number % len(_HALLS)]
    text = f"The {hall} in hall {number % 97} was checked for order {number}. Its pressure is {number % 13} bar."
    return f"Check {number} of the {hall}", f"Hall {number % 97}, order {number}", text
