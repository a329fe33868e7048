"""Real agent runs, if their data is present: written exactly as they were read, and converted to every provider."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from quire.model.messages import Provider
from quire.providers import format_messages, parse, parse_each
from tests.providers.pairs import check_pairs, events

DATA = Path(__file__).parents[3] / "shared" / "data"
OTHERS: tuple[Provider, ...] = ("responses", "anthropic")


def runs(name: str) -> list[list[dict[str, Any]]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no trace {name} in {DATA}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["messages"] for line in lines]


@pytest.mark.parametrize("name", ["tau_airline.jsonl.gz", "swe_agent.jsonl.gz"])
def test_real_runs_go_back_as_they_came(name: str) -> None:
    for history in runs(name):
        messages = parse(history)
        assert not any(message.raw for message in messages)
        assert format_messages(messages, "openai") == history
        assert list(parse_each(history)) == messages


@pytest.mark.parametrize("name", ["tau_airline.jsonl.gz", "swe_agent.jsonl.gz"])
def test_real_runs_survive_a_journey_through_the_others(name: str) -> None:
    for history in runs(name):
        pairs = list(events(history, "openai"))
        for provider in OTHERS:
            there = format_messages(parse(history), provider)
            check_pairs(there, provider)
            assert list(events(there, provider)) == pairs
            assert list(events(format_messages(parse(there), "openai"), "openai")) == pairs
