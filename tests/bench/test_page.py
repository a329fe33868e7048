"""The benchmark page is generated from the stored results and lists every loss of quire."""

from typing import Any
from xml.etree import ElementTree

from bench import page
from bench.__main__ import ALL
from bench.peers.losses import as_markdown, losses
from bench.peers.plots import plots
from bench.peers.registry import FLOOR, NOTHING, OURS
from bench.peers.results import Measured

SLOW, QUICK, BROKEN = "langgraph SqliteSaver", "semantic-kernel truncation reducer", "headroom compress"
QUERY = "退款"


def life(billed: float, **more: Any) -> dict[str, Any]:
    values = {"calls": 10, "tokens": 50_000, "mean": 5_000, "cached": 0.9, "billed": billed, "over": 0, "refused": 0}
    return {**values, "summaries": 0, "faults": {}, "milliseconds": 1.0, **more}


def found(milliseconds: float, right: int = 10) -> dict[str, Any]:
    asked = {"milliseconds": milliseconds, "right": right, "others": 0, "wanted": 10}
    return {"seconds": 2.0, "queries": {QUERY: asked}}


def results() -> dict[str, Any]:
    cells = [
        *(cell("turn", name, "100/8000", ratio=ratio, sampled=ratio > 99) for name, ratio in turns()),
        *(
            cell("resume", name, "500", milliseconds=ms, megabytes=1)
            for name, ms in ((FLOOR, 1), (OURS, 3), (SLOW, 90))
        ),
        *(
            cell("writers", name, "2×10", rate=rate, sent=400, errors=0, lost=0)
            for name, rate in ((FLOOR, 9), (OURS, 3))
        ),
        cell("search", "bare FTS5, words", "2000", **found(1, right=0)),
        cell("search", OURS, "2000", **found(2)),
        cell("life", OURS, "long/8000", **life(8_000)),
        cell("life", NOTHING, "long/8000", **life(30_000, over=9)),
        cell("life", QUICK, "long/8000", **life(7_000, refused=4, faults={"a result without its call": 4})),
        cell("life", BROKEN, "", error="ERROR: no wheel"),
    ]
    return {"versions": {"langgraph": "1.2"}, "cells": cells}


def turns() -> list[tuple[str, float]]:
    return [(FLOOR, 1), (OURS, 5), (SLOW, 200), (QUICK, 0.5)]


def cell(work: str, peer: str, case: str, **values: Any) -> dict[str, Any]:
    return {"work": work, "peer": peer, "case": case, **values}


def test_the_page_is_what_the_kept_results_give() -> None:
    told = "Run `python -m bench --page`."
    kept = page.kept(ALL)
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == page.page(kept), told
    for name, plot in plots(Measured(kept[page.SIDE_BY_SIDE])).items():
        assert f"images/{name}" in text
        assert (page.IMAGES / name).read_text(encoding="utf-8") == plot, told


def test_every_cell_in_which_another_is_better_is_a_loss_and_no_other() -> None:
    lost = {(loss.measure.title, loss.entry.name) for loss in losses(Measured(results()))}
    assert lost == {
        ("time of a turn", FLOOR),
        ("time of a turn", QUICK),
        ("time of a resume", FLOOR),
        ("messages a second by two writers", FLOOR),
        (f"time to find “{QUERY}”", "bare FTS5, words"),
        ("billed tokens", QUICK),
    }


def test_a_loss_tells_by_how_much_and_what_the_winner_pays_for_it() -> None:
    rows = as_markdown(Measured(results())).splitlines()
    assert f"| time of a turn | {QUICK} | 0.1× (100 messages, 8k) | keeps nothing on disk |" in rows
    told = "keeps nothing on disk, 4 of 10 lists refused by a provider"
    assert f"| billed tokens | {QUICK} | 0.875× (long, 8k) | {told} |" in rows


def test_the_tables_tell_ratios_failures_and_what_is_broken() -> None:
    text = page.side_by_side(Measured(results()), {}, "")
    assert f"| {SLOW} | 200×\\* |" in text
    assert f"| {BROKEN} (in memory) | not measured: ERROR: no wheel |" in text
    assert "| 4 (a result without its call 4) | 0 |" in text
    assert "| **quire** | 1× | 2× (10 of 10) |" in text
    assert "| raw floor | 1× | 0.33× | 1.00 MB |" in text


def test_the_plots_are_whole_documents_that_name_every_row() -> None:
    for name, plot in plots(Measured(results())).items():
        ElementTree.fromstring(plot)
        assert OURS in plot, name


def test_without_results_of_peers_there_is_a_page_all_the_same() -> None:
    assert "Side by side" not in page.page({})
    assert page.page({}).startswith("# Benchmarks")
