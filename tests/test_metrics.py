"""Metrics of any process in Prometheus format, with the parser of Prometheus' own rules."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import quire
from quire import Busy, Conflict, metrics

_SAMPLE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)+)\})? (\S+)$')


@pytest.fixture(autouse=True)
def counting() -> Iterator[None]:
    metrics.start()
    yield
    metrics.stop()


def samples(text: str) -> dict[str, float]:
    """Parse metrics: every sample belongs to a family with HELP and TYPE lines."""
    found: dict[str, float] = {}
    families: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, _ = line.split(" ", 3)
            assert word in ("HELP", "TYPE")
            families.add(name)
            continue
        match = _SAMPLE.match(line)
        assert match, line
        assert re.sub(r"_(bucket|sum|count)$", "", match[1]) in families or match[1] in families
        found[line.rpartition(" ")[0]] = float(match[3])
    return found


def talk(ctx: quire.Context, turns: int) -> None:
    for turn in range(turns):
        ctx.user(f"Question {turn} about flight HAT{turn}. " * 5)
        ctx.render()
        ctx.assistant(f"Answer {turn}. " * 10)


def test_operations_of_a_program_are_counted() -> None:
    ctx = quire.open("memory:", budget=1_500)
    tokens = cached = 0
    for turn in range(30):
        ctx.user(f"Question {turn} about flight HAT{turn}. " * 5)
        view = ctx.render()
        tokens, cached = tokens + view.tokens, cached + view.shared_prefix
        ctx.assistant(f"Answer {turn}. " * 10)
    ctx.find("HAT7")
    ctx.tools.call("find", {"query": "HAT8"})
    ctx.tools.call("no such tool \n", {})
    ctx.render(max_tokens=800)
    ctx.report_usage({"prompt_tokens": view.tokens, "prompt_tokens_details": {"cached_tokens": 60}}, model="gpt-5")
    found = samples(metrics.text())
    folds = len(list(ctx.history(operation="fold")))
    assert found["quire_renders_total"] == 30
    assert found["quire_folds_total"] == folds > 0
    assert found['quire_commits_total{operation="user"}'] == 30
    assert sum(value for name, value in found.items() if name.startswith("quire_commits_total")) == ctx.seq
    assert found["quire_view_cached_tokens_total"] == cached
    parts = {name: value for name, value in found.items() if name.startswith("quire_view_tokens_total")}
    assert sum(parts.values()) == tokens
    assert parts['quire_view_tokens_total{part="folded"}'] > 0
    assert found["quire_find_seconds_count"] == 2
    assert found['quire_tool_calls_total{outcome="finished",tool="find"}'] == 1
    assert found['quire_tool_calls_total{outcome="failed",tool="unknown"}'] == 1
    assert found['quire_render_seconds_bucket{le="+Inf"}'] == found["quire_render_seconds_count"] == 31
    assert found["quire_conflicts_total"] == 0
    assert found['quire_billed_tokens_total{model="gpt-5"}'] == view.tokens
    assert found['quire_billed_cached_tokens_total{model="gpt-5"}'] == 60


def test_turns_waits_and_conflicts_are_counted() -> None:
    storage = quire.MemoryStorage()
    one, other = quire.open(storage, "a"), quire.open(storage, "a")
    with one.turn():
        one.user("x")
        with one.turn():  # it joins
            pass
        with ThreadPoolExecutor() as pool, pytest.raises(Busy):
            pool.submit(other.turn(wait=0).__enter__).result()
    with pytest.raises(ZeroDivisionError), one.turn():
        1 / 0  # noqa: B018
    with pytest.raises(Conflict):
        other.user("y")
    found = samples(metrics.text())
    assert found['quire_turns_total{outcome="finished"}'] == 1
    assert found['quire_turns_total{outcome="busy"}'] == 1
    assert found['quire_turns_total{outcome="failed"}'] == 1
    assert found["quire_turn_wait_seconds_count"] == 3
    assert found["quire_conflicts_total"] == found['quire_commit_errors_total{error="Conflict"}'] == 1


def test_no_name_of_a_context_and_no_content_is_in_the_text() -> None:
    ctx = quire.open("memory:", "user-4711")
    ctx.user("secret-0815")
    ctx.render()
    ctx.find("secret-0815")
    ctx.tools.call("write_page", {"name": "secret-0815", "text": "secret-0815"})
    assert "quire_renders_total 1\n" in metrics.text()
    assert "4711" not in metrics.text()
    assert "0815" not in metrics.text()
    metrics.stop()
    assert metrics.text() == ""
