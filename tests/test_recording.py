"""The terminal recording of the README shows what the demo prints today."""

from xml.etree import ElementTree

import pytest

from docs.recording import COLUMNS, PICTURE, draw, spans
from quire.cli import main


def letters(picture: str) -> str:
    """Return the text of a picture of a terminal, without spaces."""
    texts = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return "".join("".join((text.text or "").split()) for text in texts)


def test_the_recording_shows_the_output_of_the_demo(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    assert main(["demo", "--fast", "--no-serve"]) == 0
    printed = capsys.readouterr().out.partition("\nTry next\n")[0]
    recorded = letters(PICTURE.read_text(encoding="utf-8"))
    assert recorded == "$quiredemo" + "".join(printed.split()), "run python docs/recording.py"


def test_a_line_keeps_its_colours_and_its_columns() -> None:
    line = "\x1b[1m退款\x1b[0m at \x1b[2m\x1b[34m02:14\x1b[0m"
    assert list(spans(line)) == [(0, "b", "退款"), (4, "", " at "), (8, "d u", "02:14")]


def test_reduced_motion_shows_the_end() -> None:
    picture = draw([f"line {number}" for number in range(40)])
    still = picture.partition("prefers-reduced-motion")[2].partition("</style>")[0]
    assert still.count("animation:none") == 2
    assert "translateY(-285px)" in still  # 41 lines in 26 rows, 19 points each
