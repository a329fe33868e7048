"""The demo: it runs offline, prints the same every time, and measures every number."""

import io
import re
from pathlib import Path

import pytest

import quire
from quire.cli import main
from quire.cli.commands.demo import (
    BUDGET,
    NAME,
    DemoResult,
    comparison_table,
    load_conversation,
    print_next_commands,
    replay,
)
from quire.cli.terminal import Narration, Paint
from tests.cli.screens import plain, widest

PLAIN = Paint(colour=False)
TALK = load_conversation()
MESSAGES = TALK.messages
CALLS = sum(message.role == "assistant" for message in MESSAGES)


@pytest.fixture
def demo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the demo's files; the terminal has 100 columns."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def run_demo(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["demo", *options]) == 0
    return capsys.readouterr().out


def played(budget: int = BUDGET) -> tuple[quire.Context, DemoResult]:
    context = quire.open("memory:", budget=budget)
    return context, replay(context, TALK, Narration(PLAIN, file=io.StringIO()))


def test_the_demo_fits_a_screen_or_two_and_has_no_colours_in_a_pipe(
    capsys: pytest.CaptureFixture[str], demo_folder: Path
) -> None:
    printed = run_demo(capsys)
    assert "\x1b[" not in printed
    assert 60 <= len(printed.splitlines()) <= 112
    assert widest(printed.partition("\nTry next\n")[0]) <= 100  # commands must be whole to be copied


def test_the_demo_prints_the_same_every_time(capsys: pytest.CaptureFixture[str], demo_folder: Path) -> None:
    first, second = (re.sub(r"quire-demo-\w+", "DEMO", run_demo(capsys)) for _ in range(2))
    assert first == second


@pytest.mark.broad
def test_the_demo_is_in_colour_where_that_is_wanted(
    capsys: pytest.CaptureFixture[str], demo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = run_demo(capsys)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = run_demo(capsys, "--fast")
    assert "\x1b[34m" in coloured
    assert re.sub(r"quire-demo-\w+", "DEMO", plain(coloured)) == re.sub(r"quire-demo-\w+", "DEMO", without)


def test_the_demo_leaves_a_sound_context_that_its_last_lines_open(
    capsys: pytest.CaptureFixture[str], demo_folder: Path
) -> None:
    printed = run_demo(capsys)
    (store,) = demo_folder.glob("quire-demo-*/agent.db")
    with quire.open(store, NAME) as context:
        assert context.check() == []
        assert [message.text for message in context.messages()] == [
            TALK.system,
            *(message.text for message in MESSAGES),
        ]
        assert f"{context.seq} journal entries, check(): 0 problems" in printed
        branch = len(quire.open(store, "what-if").messages())
        assert f"fork('what-if'): {branch} messages there, {len(context.messages())} here" in printed
    assert "Cannot hide 'sys-1': it is pinned" in printed
    for command in ("tree", "view"):  # serve runs until it is stopped
        line = next(line for line in printed.splitlines() if f"quire {command} {store}" in line)
        assert main(line.split("quire ", 1)[1].split()) == 0


@pytest.mark.broad
def test_the_demo_fits_a_narrow_terminal_and_prints_the_tokens_after_the_last_reply(
    capsys: pytest.CaptureFixture[str], demo_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = run_demo(capsys).partition("\nTry next\n")[0]
    assert widest(printed) <= 80
    (store,) = demo_folder.glob("quire-demo-*/agent.db")
    with quire.open(store, NAME, budget=BUDGET) as context:
        left = len(context.messages())
    _, done = played()
    sizes = re.search(r"the view has ([\d,]+) tokens; it had ([\d,]+)", " ".join(printed.split()))
    assert sizes is not None
    assert sizes[2] == f"{done.view.tokens:,}"
    assert f"whole: {sizes[1]} → " in printed
    assert f"{len(MESSAGES)} messages and a prompt in" in printed
    assert f"{left} after it: the prompt and the {len(MESSAGES)}\n" in printed


@pytest.mark.parametrize(
    ("on_path", "beside", "typed"),
    [(True, True, "quire"), (False, True, "bin/quire"), (False, False, "bin/python3 -m quire")],
)
def test_the_last_lines_are_short_enough_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: bool, beside: bool, typed: str
) -> None:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name in ("python3", *(["quire"] if beside else [])):
        (scripts / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(scripts / "python3"))
    monkeypatch.setenv("PATH", str(scripts) if on_path else "")
    out = io.StringIO()
    print_next_commands(Path("/tmp/quire-demo-a3aq26q7/agent.db"), Narration(PLAIN, file=out))
    assert out.getvalue().splitlines()[1] == f"   {typed} view /tmp/quire-demo-a3aq26q7/agent.db -c {NAME}"
    assert widest(out.getvalue()) <= 88


def test_the_demo_shows_every_call_and_every_fold(capsys: pytest.CaptureFixture[str], demo_folder: Path) -> None:
    printed = run_demo(capsys)
    calls = re.findall(r"^ +(\d+) +\d+ +([\d,]+) +(\d+) % +\d+  [A-Za-z.]{20,}  \S", printed, re.MULTILINE)
    assert [int(number) for number, *_ in calls] == [*range(1, CALLS + 1)]
    assert all(int(tokens.replace(",", "")) <= BUDGET for _, tokens, _ in calls)
    (store,) = demo_folder.glob("quire-demo-*/agent.db")
    with quire.open(store, NAME) as context:
        folds = list(context.history(operation="fold"))
    assert len(re.findall(r"── folded \d+ exchanges, saved", printed)) == len(folds) >= 2
    assert re.search(r"find\('INV-20931 charge sent'\) → (usr-\d+): 2026-03-11 02:14:09\.122", printed)
    assert printed.count("the same view, byte for byte") == 2
    assert "another view" not in printed


def test_the_summary_is_what_the_replay_measured(capsys: pytest.CaptureFixture[str], demo_folder: Path) -> None:
    printed = run_demo(capsys)
    _, done = played()
    bill = done.view.bill()
    assert f"bill(): {bill.read:,} from the cache, {bill.plain:,} plain, costs {bill.cost:,.0f}. {bill.why}" in printed
    table = list(comparison_table(done, PLAIN))
    assert "\n".join(f"   {line}" for line in table) in printed
    rows = {line[:26].strip(): line.split()[-2:] for line in table}
    assert rows["input tokens"] == [f"{done.ours.tokens:,}", f"{done.theirs.tokens:,}"]
    assert rows["illegal requests"] == ["0", "0"]


def test_quire_reaches_everything_and_costs_less_than_a_sliding_window() -> None:
    _, done = played()
    ours, theirs = done.ours, done.theirs
    assert ours.calls == theirs.calls == CALLS
    assert ours.answers.shown + ours.answers.found == ours.answers.total == len(TALK.questions)
    assert theirs.answers.found == done.theirs.facts.found == 0
    assert theirs.answers.shown < len(TALK.questions)
    assert done.ours.facts.total == done.theirs.facts.total > 100
    assert done.ours.facts.shown + done.ours.facts.found > done.theirs.facts.shown
    assert ours.shared / ours.tokens > theirs.shared / theirs.tokens
    assert ours.cost < theirs.cost


def test_the_replay_counts_what_the_views_say() -> None:
    _, done = played()
    context = quire.open("memory:", budget=BUDGET)
    context.system(TALK.system)
    views = []
    for message in MESSAGES:
        if message.role == "assistant":
            views.append(context.render())
        context.add(message)
    assert done.ours.tokens == sum(view.tokens for view in views)
    assert done.ours.shared == sum(view.shared_prefix for view in views)
    assert done.ours.cost == pytest.approx(sum(view.bill().cost for view in views))


def test_with_room_for_everything_the_two_differ_by_the_preamble_alone() -> None:
    _, done = played(budget=50_000)
    preamble = done.view.by_kind()["preamble"]
    assert done.ours.tokens - done.theirs.tokens == CALLS * preamble
    assert done.ours.shared - done.theirs.shared == (CALLS - 1) * preamble
    assert done.ours.answers == done.theirs.answers
    assert done.ours.facts == done.theirs.facts
    assert done.ours.facts.shown == done.ours.facts.total


def test_a_late_question_is_about_an_early_message_and_does_not_contain_the_answer() -> None:
    asked = [(place, question) for place, message in enumerate(MESSAGES) for question in TALK.questions_in(message)]
    assert [question for _, question in asked] == list(TALK.questions)
    for place, question in asked:
        assert MESSAGES[place + 1].role == "assistant"
        assert question.answer not in MESSAGES[place].text
        first = next(n for n, message in enumerate(MESSAGES) if question.answer in message.text)
        assert first < len(MESSAGES) // 3 < place


def test_the_conversation_is_legal_and_has_calls_long_results_and_chinese() -> None:
    context = quire.open("memory:")
    for message in MESSAGES:
        context.add(message)
    assert quire.check_legal(context.render().openai(), "openai") == []
    assert 40 <= len(MESSAGES) <= 60
    assert sum(bool(message.tool_calls) for message in MESSAGES) >= 10
    assert max(len(message.text) for message in MESSAGES if message.role == "tool") > 1_500
    assert sum(bool(re.search("[\u4e00-\u9fff]", message.text)) for message in MESSAGES) >= 5


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_pauses_are_on_a_terminal_only_and_not_with_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("quire.cli.terminal.sleep", slept.append)
    Narration(PLAIN, file=io.StringIO()).slow_line("x")
    Narration(PLAIN, file=Terminal(), fast=True).slow_line("x")
    assert slept == []
    Narration(PLAIN, file=Terminal()).slow_line("x")
    assert len(slept) == 1
    assert slept[0] <= 0.1


def test_the_window_in_the_demo_is_shown_once_and_breaks_no_prefix(
    capsys: pytest.CaptureFixture[str], demo_folder: Path
) -> None:
    printed = run_demo(capsys)
    assert printed.count("<Window ") == 1
    kept = re.search(r"before it ([\d,]+) of ([\d,]+) tokens stay cached", printed)
    assert kept is not None
    assert kept[1] == kept[2]
