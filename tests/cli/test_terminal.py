"""The width of text, and cutting text to a width."""

import pytest

from quire.cli.terminal import cut, cut_around, pad, terminal_width, width


@pytest.mark.parametrize(
    ("text", "columns"),
    [("", 0), ("abc", 3), ("退款", 4), ("（a）", 5), ("é", 1), ("e\u0301", 1), ("a\u200bb", 2), ("🙂", 2), ("─…", 2)],
)
def test_a_chinese_character_takes_two_columns_and_a_combining_mark_none(text: str, columns: int) -> None:
    assert width(text) == columns


def test_text_that_fits_is_not_changed() -> None:
    assert cut("退款 17", 7) == "退款 17"
    assert cut("", 0) == ""


@pytest.mark.parametrize("room", range(12))
@pytest.mark.parametrize("text", ["nightly settlement", "退款必须在周五之前完成", "a退b款c必d须e在f"])
def test_a_cut_text_never_takes_more_than_its_room(text: str, room: int) -> None:
    found = cut(text, room)
    assert width(found) <= room
    assert not room or found.endswith("…")
    assert text.startswith(found.rstrip("…"))


def test_a_wide_character_is_not_halved() -> None:
    assert cut("退款必须", 4) == "退…"
    assert cut("退款必须", 5) == "退款…"


@pytest.mark.parametrize("text", ["", "abc", "退款", "退款必须在周五", "a long text in a cell"])
def test_padded_text_takes_exactly_its_room(text: str) -> None:
    assert width(pad(text, 9)) == 9
    assert width(pad(text, 9, right=True)) == 9
    assert pad("退", 4) == "退  "
    assert pad("退", 4, right=True) == "  退"


def test_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert terminal_width() == 72
    monkeypatch.setenv("COLUMNS", "3")
    assert terminal_width() == 40


@pytest.mark.parametrize("room", range(4, 40))
@pytest.mark.parametrize(
    "text", ["nightly settlement «is» due on friday", "退款必须在«周五»之前完成结算和对账", "a «b»", "«x» " * 9]
)
def test_text_cut_around_a_place_fits_and_contains_the_place(text: str, room: int) -> None:
    found = cut_around(text, text.index("«"), room)
    assert width(found) <= room
    assert found.strip("…") in text
    assert "«" in found
    assert found == text or width(text) > room


def test_text_is_cut_at_the_ends_far_from_the_place() -> None:
    text = f"{'退' * 40}«款»{'项' * 40}"
    assert cut_around(text, 40, 20) == "…退退退«款»项项项项…"
    assert cut_around(text, -1, 5) == "退退…"
    assert cut_around("before it comes the «end»", 20, 16) == "…comes the «end»"
    assert cut_around("the «beginning» and so on", 4, 20) == "the «beginning» and…"
