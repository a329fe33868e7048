"""The figures of the READMEs equal the stored results, in both languages."""

from typing import Any

from bench import page, readme
from bench.__main__ import ALL
from bench.peers.registry import FLOOR, NOTHING, OURS
from tests.bench.test_page import QUICK, SLOW, cell, life

TEXT = f"# A book\n\n{readme.BEGIN}| outdated |\n{readme.END}\nThe rest.\n"


def results() -> dict[str, Any]:
    cells = [
        *(cell("turn", name, "10000/8000", ratio=ratio) for name, ratio in ((FLOOR, 1), (OURS, 5), (SLOW, 200))),
        *(cell("resume", name, "10000", milliseconds=ms) for name, ms in ((FLOOR, 2), (OURS, 6), (SLOW, 90))),
        cell("life", OURS, "long/8000", **life(8_000)),
        cell("life", NOTHING, "long/8000", **life(32_000, over=9)),
        cell("life", QUICK, "long/8000", **life(7_000, refused=4, over=2)),
    ]
    figures: dict[str, list[tuple[str, float, str]]] = {
        "view": [("facts of folded text neither in a summary nor among five hits", 0.0, "of 13,271 in long/8k")],
        "recall": [
            (f"evidence not all shown, 1,000 tokens: {who}", missing, "")
            for who, missing in (("quire", 25), ("quire + wordllama", 24), ("bm25s over turns", 41), ("recency", 97))
        ],
        "book": [("open 1,000,000 pages and read one", 1.43, "")],
    }
    kept = {
        topic: {"figures": [{"name": name, "value": value, "note": note} for name, value, note in rows]}
        for topic, rows in figures.items()
    }
    waits = {
        OURS: 15_600.0,
        "newest": 146_000.0,
        "trim": 77_000.0,
        "summarise": 20_000.0,
        "compact": 14_000.0,
        "unmanaged": 99_000.0,
    }
    lives = [
        {"budget": 8_000, "strategy": name, "calls": 1_073, "prefill_ms": {"8B": {"total": wait}}}
        for name, wait in waits.items()
    ]
    return {"peers": {"versions": {}, "cells": cells}, "lives": {"recordings": {"airline": lives}}, **kept}


def test_both_readmes_say_what_the_kept_results_say() -> None:
    kept = page.kept(ALL)
    for language, file in enumerate(readme.FILES):
        text = file.read_text(encoding="utf-8")
        assert readme.BEGIN in text
        assert text == readme.with_figures(text, kept, language), "Run `python -m bench --page`."


def test_the_lines_are_computed_and_written_between_the_marks() -> None:
    text = readme.with_figures(TEXT, results(), 0)
    assert text.startswith(f"# A book\n\n{readme.BEGIN}| | quire | others |\n")
    assert text.endswith(f"{readme.END}\nThe rest.\n")
    assert "outdated" not in text
    ours = {row.english: (row.ours, row.others) for row in readme.rows(results())}
    assert ours["billed tokens of long conversations at 8k"] == ("1× (90% cached)", "no management 4×")
    refused = ours["requests that a provider refuses or that exceed the budget, 4k to 32k"]
    assert refused == ("0 of 10", "1 of 1 peers have some: 4 to 4")
    waits = ours[
        "time to the first token, sum of 1,073 calls at 8k (model with 8 billion parameters, measured on an H200)"
    ]
    assert waits == ("16 s", "newest 146 s, trim 77 s, summarise 20 s, compact 14 s, unmanaged 99 s")
    turn = ours["one durable turn in a conversation of 10,000 messages, × raw floor"]
    assert turn == ("5×", f"{SLOW} 200×, {SLOW} 200×")
    assert ours["resuming 10,000 messages in a new process, × raw floor"][0] == "3×"
    assert ours["facts lost by folding: not in a summary and not found by search"][0] == "0 of 13,271"


def test_the_chinese_results_have_no_english_words() -> None:
    text = readme.with_figures(TEXT, results(), 1)
    assert "| 1×（90% 来自缓存） | 不做管理 4× |" in text
    assert "| 10 个中 0 个 | 1 个同类库中有 1 个出现过：4 到 4 个 |" in text


def test_a_readme_without_its_results_is_left_alone() -> None:
    assert readme.with_figures(TEXT, {"view": {"figures": []}}, 1) == TEXT
    assert readme.with_figures("no marks\n", results(), 1) == "no marks\n"
