"""The terminal recordings of the README show what the commands print today."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.recording import DEMO, PICTURE, TOUR, TOUR_PICTURE, draw, run_commands

_TIME = re.compile(r"\d+\.\d+")
"""The milliseconds of a replay, and the scores of a search."""


def letters(picture: str) -> str:
    """Return the words of a picture of a terminal."""
    texts = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return " ".join(" ".join((text.text or "").split()) for text in texts)


@pytest.mark.parametrize(
    ("commands", "picture"),
    [(DEMO, PICTURE), pytest.param(TOUR, TOUR_PICTURE, marks=pytest.mark.slow)],
    ids=["demo", "tour"],
)
def test_the_recording_shows_what_the_commands_print(commands: Sequence[str], picture: Path) -> None:
    printed = letters(draw(run_commands(commands)))
    recorded = letters(picture.read_text(encoding="utf-8"))
    assert _TIME.sub("#", recorded) == _TIME.sub("#", printed), "run python docs/recording.py"
