"""Adapters: a turn through each framework, compared with the framework alone and the same quire calls by hand."""

import statistics
from importlib import import_module
from pathlib import Path

from bench.figures import Figure

ADAPTERS = ("langchain", "openai_agents", "pydantic_ai", "openai", "anthropic", "mcp")
"""The modules here. Each has `turns(folder, count)`: seconds for the framework alone, by hand, and the adapter.
A module with `RIVAL` (name, limit, note) has a second figure: the adapter against the framework alone."""
_LIMIT = 1.5
_ROUNDS = 5


def run(folder: Path, size: int) -> list[Figure]:
    """Return the figures of every adapter: medians of some rounds, after one round to warm up."""
    count = 50 if size >= 1_000_000 else 15
    return [figure for name in ADAPTERS for figure in _overhead(name, folder, count)]


def _overhead(name: str, folder: Path, count: int) -> list[Figure]:
    module = import_module(f"bench.adapters.{name}")
    turns, rounds = module.turns, []
    for number in range(_ROUNDS + 1):
        place = folder / f"{name}-{number}"
        place.mkdir()
        rounds.append(turns(place, count))
    alone, by_hand, adapter = (statistics.median(times) / count * 1e3 for times in zip(*rounds[1:], strict=True))
    ratio = statistics.median(taken / (framework + hand) for framework, hand, taken in rounds[1:])
    note = f"{adapter:.2f} ms against {alone:.2f} ms of the framework and {by_hand:.2f} ms by hand"
    whole = f"a turn through {name}, × (the framework alone + direct calls of quire)"
    figures = [Figure(whole, ratio, "×", _LIMIT, note)]
    if hasattr(module, "RIVAL"):
        title, most, remark = module.RIVAL
        against = statistics.median(taken / framework for framework, _, taken in rounds[1:])
        figures.append(Figure(title, against, "×", most, remark))
    return figures
