"""What is measured with: long dialogues with questions, and the way to open a context in every version of quire."""

import gzip
import inspect
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import quire
from bench.traces import DATA, Values

DIALOGUES = ("locomo_corrected", "beam", "memdaily_zh")
BUDGET = 8_000
_DATES = ("%I:%M %p on %d %B, %Y", "%B-%d-%Y", "%Y年%m月%d日 %H:%M")
_FALSE_PREMISE = 5
"""The category of LoCoMo whose questions ask for something that was never said."""


class Dialogue(NamedTuple):
    """A long dialogue: the messages in order with their times; questions, each with the texts that answer it."""

    messages: list[tuple[datetime, Values]]
    questions: list[tuple[str, list[str]]]


def opened(where: str, name: str = "bench", *, budget: int = BUDGET, **options: Any) -> quire.Context:
    """Open a context. An option that this version of quire does not know is left out: bridge differences here."""
    options |= {"budget": budget, "key": "compare"}
    known = inspect.signature(quire.open).parameters
    return quire.open(where, name, **{key: value for key, value in options.items() if key in known})


@cache
def dialogues(name: str) -> list[Dialogue]:
    """Return the dialogues of a data set, with the questions that have evidence."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [_dialogue(json.loads(line)) for line in lines]


def _dialogue(row: Values) -> Dialogue:
    texts = {turn["id"]: turn["text"].strip() for session in row["sessions"] for turn in session["turns"]}
    asked = [one for one in row["qa"] if one["category"] != _FALSE_PREMISE and one["evidence"]]
    known = [one for one in asked if all(turn in texts for turn in one["evidence"])]
    return Dialogue([*_messages(row)], [(one["question"], [texts[turn] for turn in one["evidence"]]) for one in known])


def _messages(row: Values) -> Iterator[tuple[datetime, Values]]:
    """Yield the messages with their times, half a minute apart. The first speaker is the user."""
    for session in row["sessions"]:
        start = _time(session["date"])
        for place, turn in enumerate(session["turns"]):
            role = "user" if turn["speaker"] == row["speakers"][0] else "assistant"
            name = {} if turn["speaker"] == role else {"name": turn["speaker"]}
            yield start + timedelta(seconds=30 * place), {"role": role, "content": turn["text"], **name}


def _time(written: str) -> datetime:
    for form in _DATES:
        with suppress(ValueError):
            return datetime.strptime(re.sub(r" 周. ", " ", written), form).replace(tzinfo=UTC)
    raise ValueError(f"unknown form of a date: {written}")
