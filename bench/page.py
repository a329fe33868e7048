"""The pages that say what was measured: docs/benchmarks.md with its plots and the READMEs, from the kept results."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import lives, readme
from bench.figures import as_markdown, missed
from bench.peers import losses, plots, tables
from bench.peers.registry import PEERS, SEARCHERS, Entry
from bench.peers.results import Measured

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
SIDE_BY_SIDE = "peers"
"""The topic that is kept apart: its results are cells, not figures."""

Kept = Mapping[str, Mapping[str, Any]]


def write(topics: list[str]) -> None:
    """Write the page and its plots from all that was kept."""
    results = kept(topics)
    PAGE.write_text(page(results), encoding="utf-8")
    if SIDE_BY_SIDE in results:
        for name, plot in plots.plots(Measured(results[SIDE_BY_SIDE])).items():
            (IMAGES / name).write_text(plot, encoding="utf-8")
    readme.write(results)


def kept(topics: list[str]) -> Kept:
    """What was measured last, by topic, in the order of the page."""
    return {name: json.loads(file.read_text()) for name in topics if (file := RESULTS / f"{name}.json").exists()}


def page(results: Kept) -> str:
    """The page: the side-by-side, where quire loses, how it was measured, then the figures of every topic."""
    figures = {name: result for name, result in results.items() if name not in (SIDE_BY_SIDE, lives.TOPIC)}
    life = lives.as_markdown(results[lives.TOPIC]) if lives.TOPIC in results else ""
    measured = Measured(results[SIDE_BY_SIDE]) if SIDE_BY_SIDE in results else None
    return _HEAD + (side_by_side(measured, figures, life) if measured else "") + as_markdown(figures)


def side_by_side(measured: Measured, figures: Kept, life: str) -> str:
    """quire beside its peers, as Markdown, with the price of a life and what was missed."""
    return _SIDE_BY_SIDE.format(
        turn=tables.turn(measured),
        resume=tables.resume(measured),
        writers=tables.writers(measured),
        search=tables.search(measured),
        life=tables.life(measured),
        losses=losses.as_markdown(measured),
        missed=missed(figures),
        replayed=life,
        machine=", ".join(f"{what} {value}" for what, value in measured.machine.items()),
        minutes=f"{measured.minutes:.0f}",
        peers=_peers(measured),
    )


def _peers(measured: Measured) -> str:
    rows = ["| row | what is called | version |", "|---|---|---|"]
    rows += [f"| {entry.name} | {entry.does} | {_version(measured, entry)} |" for entry in (*PEERS, *SEARCHERS)]
    return "\n".join(rows)


def _version(measured: Measured, entry: Entry) -> str:
    return f"{entry.package} {measured.versions.get(entry.package, 'not installed')}" if entry.package else ""


_HEAD = """# Benchmarks

Written by `python -m bench`, from what it measured last: nothing here is typed in. Times vary with the machine, ratios
hardly: the raw floor, which does the least that the task needs, is measured in the same run.

"""

_SIDE_BY_SIDE = """## Side by side

Each row is one peer, used as its documentation shows; each cell is measured in a process of its own. A row that is
marked “in memory” keeps nothing on disk. What every row calls, and in which version, is
[below](#how-it-was-measured).

### An agent's life

Recorded conversations are replayed, and a list is made at every call to the model. Only conversations that do not fit
the budget count. *Billed* is the price of the input: tokens that the provider has cached (what a list begins with
like the list before) cost a tenth. *Refused* are lists that OpenAI's chat API refuses (a tool's result without its
call, a call without its result) or Anthropic's does (one that does not begin with the user). A row that sends less
may have forgotten more: the *mean list* says how many tokens the model saw, and *no management* what sending
everything would cost, if the model could take it.

![What a call costs in long conversations](images/bench-life.svg)

![The same, budget by budget](images/bench-budgets.svg)

{life}

{replayed}
### A turn

One message is appended, durably where the peer has a store, and the list for the model is made. The last
200 turns count. A star: all turns one by one would have taken longer than some seconds, so the rest of the
conversation was filled in at once, and as many of the last turns were measured as there was time for.

![A durable turn, by the length of the conversation](images/bench-turn.svg)

{turn}

quire and the raw floor leave it to SQLite when the disk has to be waited for, which a crash of the process survives;
the rows “synced” wait at every commit, as SQLite does if it is not told otherwise.

### Resuming

A fresh process opens a long conversation and makes an 8k list; the quickest of three counts. Everything is imported
before.

![Resuming in a fresh process](images/bench-resume.svg)

{resume}

### Two writers

Two processes write sessions of twenty messages into one store at the same time; then a third looks for what they were
told is stored.

{writers}

### Search

100,000 short texts, half English, half Chinese. Times are those of bare FTS5 tables of words, as multiples; in
brackets the hits that have all words, of those there are, ten at most, and others, which have some of the words.

{search}

## Where quire loses

Every cell above in which another row is better, found by going through all of them: none is left out, however small.
The raw floor and bare FTS5 do less than the others and are here all the same.

{losses}

And these are above the limit that quire has set itself, of [the figures of every part](#the-figures-of-every-part):

{missed}

## How it was measured

`python -m bench peers` on: {machine}; {minutes} minutes. Tokens are those of o200k, and 4 for every message and every
tool call. Peers that know no tokens get a window of as many messages as fit on average; peers that keep no system
prompt get it set before their list, and that much less room. Counts of texts that were counted once are looked up,
for the floor and for every peer that takes a counter. The peers are installed by the command itself, with the
versions in `bench/peers/requirements`; quire is measured from the checkout, in the same environment.

{peers}

"""
