"""The map of the window is in proportion, fits its width, and is the same with and without colours."""

from itertools import groupby
from pathlib import Path

import pytest

import quire
from quire.cli import main
from quire.cli.commands.view import draw_bar, draw_map
from quire.cli.terminal import Paint
from quire.view.parts import ViewPart
from tests.cli.screens import plain, widest

PLAIN, COLOUR = Paint(colour=False), Paint(colour=True)


def view_of(*pieces: tuple[str, int], budget: int, cached: int = 0) -> quire.View:
    """Return a view of parts with a kind and a size and no content."""
    parts = [ViewPart(kind, [], tokens) for kind, tokens in pieces]  # type: ignore[arg-type]
    return quire.View(parts, budget=budget, shared_prefix=cached)


def runs(cells: str) -> list[tuple[str, int]]:
    return [(letter, len(list(run))) for letter, run in groupby(cells)]


def test_a_bar_is_in_proportion_and_small_letters_are_new() -> None:
    view = view_of(("system", 100), ("folded", 200), ("exchange", 400), budget=1_000, cached=500)
    assert runs(draw_bar(view, 10, PLAIN)) == [("S", 1), ("F", 2), ("E", 2), ("e", 2), (".", 3)]
    assert len(draw_bar(view, 37, PLAIN)) == 37


def test_the_cached_prefix_may_end_within_a_piece() -> None:
    view = view_of(("exchange", 1_000), budget=1_000, cached=250)
    assert draw_bar(view, 8, PLAIN) == "EEeeeeee"


@pytest.mark.parametrize(
    ("kind", "letter"),
    [("preamble", "p"), ("segment", "g"), ("note", "n"), ("opened", "o"), ("opening", "p"), ("something new", "t")],
)
def test_every_kind_of_piece_has_a_letter(kind: str, letter: str) -> None:
    view = view_of((kind, 10), budget=10)
    assert draw_bar(view, 4, PLAIN) == 4 * letter
    assert f"{letter.upper()} " in list(draw_map(view, PLAIN, 60))[1]


def test_an_empty_window_is_free() -> None:
    assert draw_bar(view_of(budget=100), 5, PLAIN) == "....."
    assert draw_bar(view_of(budget=0), 5, PLAIN) == "....."


@pytest.mark.parametrize("budget", [7, 100, 2_000, 8_000, 128_000, 1_000_003])
@pytest.mark.parametrize("columns", [40, 80, 97])
def test_a_grid_has_few_rows_of_one_length_and_a_cell_for_every_so_many_tokens(budget: int, columns: int) -> None:
    view = view_of(("system", budget // 10), ("exchange", budget // 2), budget=budget, cached=budget // 10)
    lines = list(draw_map(view, PLAIN, columns))
    rows = [line for line in lines if set(line) <= set("SsEe.")]
    assert 1 <= len(rows) <= 4
    assert widest("\n".join(lines)) <= columns
    assert len({len(row) for row in rows[:-1]}) <= 1
    legend = " ".join(lines[len(rows) :])
    size = int(legend.split("a cell is ")[1].split(" token")[0].replace(",", ""))
    cells = "".join(rows)
    assert len(cells) == -(-budget // size)
    assert abs(cells.count("e") * size - budget // 2) <= size
    assert f"E exchanges {budget // 2:,}" in legend
    assert f"free {budget - budget // 10 - budget // 2:,}" in legend


def test_colours_change_nothing_but_colours() -> None:
    view = view_of(("system", 100), ("segment", 90), ("folded", 200), ("exchange", 400), budget=1_000, cached=500)
    coloured = list(draw_map(view, COLOUR, 50))
    assert "\x1b[34m" in "".join(coloured)
    assert [plain(line) for line in coloured] == list(draw_map(view, PLAIN, 50))
    assert plain(draw_bar(view, 30, COLOUR)) == draw_bar(view, 30, PLAIN)


def test_the_view_command_maps_a_context_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    store = tmp_path / "a.db"
    with quire.open(store, "agent") as context:
        context.system("You are careful.")
        context.pages.create_detail_page("座位", "", "乘客想要靠窗的座位。", "mem-0")
        for number in range(40):
            context.user(f"Question {number}? " + "Please look. " * 20)
            context.assistant(f"Answer {number}. " + "It is so. " * 20)
        seq = context.seq
    assert main(["view", str(store), "--context", "agent", "--budget", "1500"]) == 0
    said = capsys.readouterr().out
    assert " of 1,500 tokens" in said
    for word in ("S system", "G segments", "F folded lines", "E exchanges", ". free"):
        assert word in said
    assert widest(said) <= 60
    with quire.open(store, "agent") as context:
        assert context.seq == seq
    assert main(["view", str(store), "--context", "other"]) == 2
    assert "'agent'" in capsys.readouterr().err


def test_a_negative_budget_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    quire.open(tmp_path / "a.db").close()
    assert main(["view", str(tmp_path / "a.db"), "--budget", "-5"]) == 2
    assert "--budget is -5" in capsys.readouterr().err
