"""Charts are well-formed, label every line and bar, and have round ticks."""

import re
from collections.abc import Sequence
from itertools import pairwise
from math import inf, nan
from xml.etree import ElementTree

import pytest

from quire.cli.charts import (
    Axis,
    Bar,
    Line,
    draw_bars,
    draw_lines,
    make_scale,
    make_scale_at,
    short_number,
    spread_labels,
    stack_panels,
)
from quire.errors import InvalidValue

SVG = "{http://www.w3.org/2000/svg}"
BUDGET = Axis("budget", "tokens", log=True)
COST = Axis("billed cost", "plain tokens")


def bar_chart(title: str, bars: Sequence[Bar], axis: Axis) -> str:
    return stack_panels(draw_bars(title, bars, axis))


def line_chart(title: str, lines: Sequence[Line], x: Axis, y: Axis) -> str:
    return stack_panels(draw_lines(title, lines, x, y))


def words(chart: str) -> list[str]:
    """Return the texts of a chart."""
    return ["".join(found.itertext()) for found in ElementTree.fromstring(chart).iter(f"{SVG}text")]


def names(chart: str) -> dict[str, float]:
    """Return the y position of each label at the end of a line."""
    found = ElementTree.fromstring(chart).iter(f"{SVG}text")
    return {text.text or "": float(text.attrib["y"]) for text in found if text.attrib["class"] in ("strong", "plain")}


def test_a_line_chart_names_every_line_at_its_end_with_its_last_value() -> None:
    chart = line_chart(
        "The price of a life",
        [
            Line("quire", [(4_000, 120_000), (8_000, 90_500)], strong=True),
            Line("最近的消息", [(4_000, 5e6), (8_000, 4e6)]),
        ],
        BUDGET,
        COST,
    )
    shown = words(chart)
    assert "The price of a life" in shown
    assert "billed cost (plain tokens)" in shown
    assert "budget (tokens)" in shown
    assert {"quire90.5k", "最近的消息4M"} <= set(shown)
    assert {"4,000", "8,000"} <= set(shown)


def test_a_chart_has_a_description_for_screen_readers() -> None:
    root = ElementTree.fromstring(line_chart("T", [Line("quire", [(4_000, 2), (8_000, 1)])], BUDGET, Axis("cost")))
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"] == f"{title.attrib['id']} {description.attrib['id']}"
    assert title.text == "T"
    assert description.text == "cost by budget (tokens); quire: 2 at 4,000 tokens, 1 at 8,000 tokens."


def test_markup_and_characters_that_xml_forbids_are_escaped() -> None:
    name = 'a <b> & "c"\x00\ud800'
    for chart in (
        line_chart(name, [Line(name, [(1, 1)])], Axis(name), Axis(name)),
        bar_chart(name, [Bar(name, 1, name)], Axis(name)),
    ):
        assert 'a <b> & "c"??' in words(chart)


def test_labels_never_overlap() -> None:
    lines = [Line(f"series {n}", [(1, 1), (2, 100 + n / 1_000)], strong=not n) for n in range(15)]
    places = sorted(names(line_chart("T", lines, Axis("x"), Axis("y"))).values())
    assert len(places) == 15
    assert all(below - above >= 16.9 for above, below in pairwise(places))


def test_fifteen_lines_differ_by_colour_or_dash() -> None:
    chart = line_chart("T", [Line(f"{n}", [(1, n), (2, n)], strong=n == 3) for n in range(15)], Axis("x"), Axis("y"))
    looks = set()
    for group in ElementTree.fromstring(chart).iter(f"{SVG}g"):
        line = group.find(f"{SVG}polyline")
        if line is not None and "opacity" not in line.attrib:
            looks.add((line.attrib["class"], line.attrib.get("stroke-dasharray")))
    assert len(looks) == 15


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [([], []), ([5], [5]), ([50, 10], [50, 10]), ([50, 50, 50], [40, 50, 60]), ([0, 0, 95], [0, 10, 90])],
)
def test_places_are_spread_between_the_edges(wanted: list[float], expected: list[float]) -> None:
    assert spread_labels(wanted, 0, 90, 10) == expected


def test_a_full_side_is_filled_from_edge_to_edge() -> None:
    assert sorted(spread_labels([90] * 5 + [80] * 5, 0, 90, 10)) == [10.0 * n for n in range(10)]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.1234, "0.123"),
        (2.5, "2.5"),
        (999, "999"),
        (1_500, "1,500"),
        (9_999, "9,999"),
        (9_999.9, "10k"),
        (12_345, "12.3k"),
        (999_999, "1M"),
        (999_700, "1M"),
        (nan, "nan"),
        (inf, "inf"),
        (3_400_000, "3.4M"),
        (-20_000, "-20k"),
        (1e-5, "0.00001"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text


def test_ticks_are_round_and_hold_all_values() -> None:
    assert make_scale(Axis("y"), [0, 7.3], 0, 1, 6, zero=False).ticks == (0, 2, 4, 6, 8)
    assert make_scale(Axis("y"), [950, 1_000], 0, 1, 6, zero=False).ticks[0] == 950
    assert make_scale(Axis("y"), [950, 1_000], 0, 1, 6, zero=True).ticks[0] == 0
    assert make_scale(Axis("y", log=True), [3, 70], 0, 1, 6, zero=False).ticks == (2, 5, 10, 20, 50, 100)
    assert make_scale(Axis("y", log=True), [1, 9e4], 0, 1, 6, zero=False).ticks == (1, 10, 100, 1_000, 10_000, 100_000)
    assert make_scale(Axis("y"), [0, 0], 0, 1, 6, zero=False).ticks[-1] == 1


def test_an_axis_with_few_values_has_a_tick_at_each() -> None:
    few = make_scale_at(BUDGET, [4_000, 8_000, 16_000, 4_000], 0, 600, 9)
    assert few.marks == [(4_000, "4k"), (8_000, "8k"), (16_000, "16k")]
    assert Axis("x").format_ticks([999.7, 20_000]) == ["1k", "20k"]
    assert [few.at(tick) for tick in few.ticks] == pytest.approx([0, 300, 600])
    near = make_scale_at(Axis("x"), [0, 1, 2, 1_000], 0, 600, 9)
    assert near.ticks == (0, 200, 400, 600, 800, 1_000)


def test_a_log_axis_omits_values_it_cannot_show() -> None:
    chart = line_chart(
        "T", [Line("a", [(0, 1), (10, 0), (10, 5), (100, nan), (100, 7)])], Axis("x", log=True), Axis("y")
    )
    assert "a7" in words(chart)
    bars = bar_chart("T", [Bar("nothing", 0), Bar("much", 1_000)], Axis("v", log=True))
    assert {"nothing", "0", "1,000"} <= set(words(bars))


def test_bars_are_in_order_with_value_unit_and_note() -> None:
    shown = words(bar_chart("T", [Bar("quire", 1.5, "0.1 ms", strong=True), Bar("向量库", 41)], Axis("times", "×")))
    assert [word for word in shown if word in ("quire", "向量库")] == ["quire", "向量库"]
    assert {"1.5×0.1 ms", "41×"} <= set(shown)


def test_a_strong_bar_is_longer_in_proportion_and_of_another_colour() -> None:
    root = ElementTree.fromstring(bar_chart("T", [Bar("a", 50, strong=True), Bar("b", 100)], Axis("v")))
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.attrib["class"] != "paper"]
    assert [rect.attrib["class"] for rect in bars] == ["f0", "quiet"]
    assert float(bars[0].attrib["width"]) == pytest.approx(float(bars[1].attrib["width"]) / 2, abs=0.1)


def lengths(chart: str) -> list[float]:
    rects = ElementTree.fromstring(chart).iter(f"{SVG}rect")
    return [float(rect.attrib["width"]) for rect in rects if rect.attrib["class"] != "paper"]


def test_negative_bars_have_a_proportional_length() -> None:
    one, two = lengths(bar_chart("T", [Bar("a", -5), Bar("b", -10)], Axis("v")))
    assert one == pytest.approx(two / 2, abs=0.1)


def test_a_bar_that_is_not_a_number_has_its_label() -> None:
    chart = bar_chart("T", [Bar("a", nan), Bar("b", inf), Bar("c", 3)], Axis("v", "%"))
    assert {"a", "nan %", "b", "inf %", "3 %"} <= set(words(chart))
    assert lengths(bar_chart("T", [Bar("a", nan)], Axis("v"))) == [1.5]


def test_panels_are_stacked_in_one_document() -> None:
    panels = [
        draw_lines("One", [Line("a", [(1, 1)])], Axis("x"), Axis("y")),
        draw_bars("Two", [Bar("b", 1)], Axis("v")),
    ]
    chart = stack_panels(*panels)
    root = ElementTree.fromstring(chart)
    assert float(root.attrib["height"]) == panels[0].height + panels[1].height
    assert re.findall(r"translate\(0 ([\d.]+)\)", chart) == ["0", f"{panels[0].height:g}"]
    assert {"One", "Two"} <= set(words(chart))


def test_a_chart_has_no_links_or_scripts_and_supports_dark_mode() -> None:
    chart = line_chart("T", [Line("a", [(1, 1)])], Axis("x"), Axis("y"))
    assert set(re.findall(r"https?://[^\"]+", chart)) == {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme:dark" in chart
    assert "<script" not in chart
    assert "url(" not in chart


@pytest.mark.parametrize("points", [[], [(1, nan)], [(inf, 1)]])
def test_a_chart_without_data_is_refused(points: list[tuple[float, float]]) -> None:
    with pytest.raises(InvalidValue, match="No point to draw in 'T'"):
        line_chart("T", [Line("a", points)], Axis("x"), Axis("y"))
    with pytest.raises(InvalidValue, match="No bar to draw in 'T'"):
        bar_chart("T", [], Axis("v"))
