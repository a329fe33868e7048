"""The terminal recordings of the README show what the commands print today."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.recording import DEMO, PICTURE, TOUR, TOUR_PICTURE, draw, run_commands, spans

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


def test_a_line_keeps_its_colours_and_its_columns() -> None:
    line = "\x1b[1m退款\x1b[0m at \x1b[2m\x1b[34m02:14\x1b[0m"
    assert list(spans(line)) == [(0, "b", "退款"), (4, "", " at "), (8, "d u", "02:14")]


def test_reduced_motion_shows_the_end() -> None:
    picture = draw([f"line {number}" for number in range(40)])
    still = picture.partition("prefers-reduced-motion")[2].partition("</style>")[0]
    assert still.count("animation:none") == 2
    assert "translateY(-266px)" in still  # 40 lines in 26 rows, 19 points each
