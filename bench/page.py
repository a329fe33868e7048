"""Write docs/benchmarks.md, its plots and the figures of the READMEs from the stored results."""

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
"""The topic with its own format: its results are cells, not figures."""

Kept = Mapping[str, Mapping[str, Any]]


def write(topics: list[str]) -> None:
    """Write the page, its plots and the figures of the READMEs."""
    results = kept(topics)
    PAGE.write_text(page(results), encoding="utf-8")
    if SIDE_BY_SIDE in results:
        for name, plot in plots.plots(Measured(results[SIDE_BY_SIDE])).items():
            (IMAGES / name).write_text(plot, encoding="utf-8")
    readme.write(results)


def kept(topics: list[str]) -> Kept:
    """Return the last results by topic, in the order of the page."""
    return {name: json.loads(file.read_text()) for name in topics if (file := RESULTS / f"{name}.json").exists()}


def page(results: Kept) -> str:
    """Return the page: the comparison, the losses, the method, and the figures of every topic."""
    figures = {name: result for name, result in results.items() if name not in (SIDE_BY_SIDE, lives.TOPIC)}
    life = lives.as_markdown(results[lives.TOPIC]) if lives.TOPIC in results else ""
    measured = Measured(results[SIDE_BY_SIDE]) if SIDE_BY_SIDE in results else None
    return _HEAD + (side_by_side(measured, figures, life) if measured else "") + as_markdown(figures)


def side_by_side(measured: Measured, figures: Kept, life: str) -> str:
    """Return the comparison with the peers as Markdown."""
    return _SIDE_BY_SIDE.format(
        turn=tables.turn(measured),
        slow_turn=tables.slow_turn(measured),
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

`python -m bench` writes this page from its last results. Only the notes under *Recall* were written by hand. Times
depend on the machine.
Ratios depend on it much less: the raw floor, the least work that solves the task, is measured in the same run.

"""

_SIDE_BY_SIDE = """## Side by side

Each row is one peer, used as its documentation shows. Each cell is measured in a separate process. A row marked “in
memory” stores nothing on disk. [Method](#method) lists the calls and the versions.

### Long conversations

Recorded conversations are replayed, and the list of messages is built at every model call. Only conversations that do
not fit the budget count. *Billed* is the price of the input: tokens in the provider's cache (the common prefix with the
previous list) cost a tenth. *Refused* counts lists that OpenAI's chat API refuses (an empty list, a tool result without
its call, a call without its result) or that Anthropic's API refuses (a list that does not start with the user). *Mean
list* is the mean number of tokens that the model received. A row that sends fewer tokens may have forgotten more. *No
management* sends everything.

![Cost per call in long conversations](images/bench-life.svg)

![The same, by budget](images/bench-budgets.svg)

{life}

{replayed}
### One turn

One message is appended (durably, if the peer has a store), and the list for the model is built. Here, this is a turn.
The last 200 turns count (the last 50 of 100 messages). The row *raw floor* is a second measurement of the floor. A star
marks a conversation that was filled in one step, because single turns would take too long. There, fewer of the last
turns were measured, as many as the time allowed.

![A durable turn, by the length of the conversation](images/bench-turn.svg)

{turn}

quire and the raw floor let SQLite decide when to sync the disk: a commit survives a crash of the process, but perhaps
not a power failure. The rows “synced” wait for the disk at every commit, as SQLite does by default.

The next table has the second-slowest of 200 turns. A dash means that fewer than 100 turns were measured. The slowest
turns of quire are folds.

{slow_turn}

### Resume

A new process opens a long conversation and builds a list for 8k. The fastest of three runs counts. Imports are done
before.

![Resuming in a new process](images/bench-resume.svg)

{resume}

### Two writers

Two processes write sessions of twenty messages into one store at the same time. A third process then checks that
every acknowledged message is stored.

{writers}

### Search

100,000 short texts, half English, half Chinese. Times are multiples of bare FTS5 tables of words. In brackets: how
many of the first ten hits contain all words, the number of texts with all words (at most ten), and the hits with only
some of the words. A table that finds nothing answers at once, so multiples of its time are large.

{search}

## Weaknesses of quire

These are all cells of the tables with peers (not of *Replayed sessions*) in which another row is better, however small
the difference. The raw floor and bare FTS5 do
less work than the others and are listed too.

{losses}

These [figures by topic](#figures-by-topic) are above quire's own limit:

{missed}

## Method

`python -m bench peers` on: {machine}; {minutes} minutes. Tokens are o200k tokens, plus 4 per message and per tool
call. A peer that does not count tokens gets a window of as many messages as fit on average. If a peer has no system
prompt, the prompt is put in front of its list, and its room is reduced by the tokens of the prompt. Each text is
counted once, for the floor and for every peer that accepts a counter. The command installs the peers in the versions
of `bench/peers/requirements`; quire is measured from the checkout, in the same environment.

{peers}

"""
