"""`quire replay`: its costs are checked by hand where possible, and its output is for people and programs."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import quire
from docs.replaying import PICTURE, draw
from quire import Message
from quire.cli.commands.demo import load_conversation
from quire.cli.replay.pricing import (
    OUTPUT,
    CallTotals,
    PrefillTimes,
    PromptCache,
    Rates,
    TokenCounts,
    parse_rates,
)
from quire.cli.replay.recordings import Recording, RecordingSet, join_recordings, read_recordings
from quire.cli.replay.report import describe_recordings, fit_columns, table_head
from quire.cli.replay.simulation import simulate
from quire.cli.replay.strategies import STRATEGIES, select_strategies
from quire.cli.terminal import Progress
from quire.errors import InvalidValue
from tests.cli.conftest import Run
from tests.cli.screens import plain, widest
from tests.cli.sessions import CLAUDE_CODE, CODEX, write_lines

DEMO_TALK = load_conversation()

MESSAGES = DEMO_TALK.messages
DEMO = RecordingSet([Recording("", DEMO_TALK.prompt, MESSAGES)], 0)
COUNTS = TokenCounts()


def talk(turns: int, *, seed: str = "") -> list[dict[str, Any]]:
    """Return a conversation with call ids that repeat in every conversation."""
    said: list[dict[str, Any]] = [{"role": "system", "content": "You are brief. 请简短。"}]
    for turn in range(turns):
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": "look", "arguments": '{"q":1}'}}
        said.append({"role": "user", "content": f"订单 A-{turn}{seed}10 在哪里？ " + "Please look again. " * 25})
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": f"仓库 W-{turn}{seed}99 " * 30})
        said.append({"role": "assistant", "content": f"它在仓库 W-{turn}{seed}99。"})
    return said


def write(path: Path, *talks: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps({"id": f"t{n}", "messages": said}) for n, said in enumerate(talks)), "utf-8")
    return path


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A file of two conversations."""
    return write(tmp_path / "runs.jsonl", talk(6), talk(4, seed="7"))


def test_the_prefix_ends_with_the_first_message_that_differs() -> None:
    one, two, other, three = (Message(role="user", content=text) for text in ("一", "two words", "other", "three"))
    sizes = {id(message): COUNTS.of(message) for message in (one, two, other, three)}
    prefix = PromptCache(COUNTS)
    assert prefix.send([one, two]) == 0
    assert prefix.send([one, two, three]) == sizes[id(one)] + sizes[id(two)]
    assert prefix.read([one, other, three]) == sizes[id(one)]
    assert prefix.send([one, other, three]) == sizes[id(one)]
    assert prefix.send([two, other, three]) == 0
    assert prefix.send([Message(role="user", content="two words")]) == sizes[id(two)]  # equal is the same
    assert prefix.send([]) == 0


def test_a_bill_is_added_up_by_hand() -> None:
    tally = CallTotals(parse_rates("3,0.3,15"))
    tally.count(1_000, 0, ())
    tally.count(1_200, 1_000, ("anthropic",), over=True)
    tally.count_summary(500, 100, 40)
    assert (tally.calls, tally.tokens, tally.shared, tally.mean) == (2, 2_200, 1_000, 1_100)
    assert (tally.input_tokens, tally.cached, tally.share) == (2_700, 1_100, 1_100 / 2_700)
    assert (tally.openai_refusals, tally.anthropic_refusals, tally.over, tally.summary_calls) == (0, 1, 1, 1)
    assert tally.cost == pytest.approx(1_600 + 0.1 * 1_100 + 5 * 40)
    assert tally.money == pytest.approx((1_600 * 3 + 1_100 * 0.3 + 40 * 15) / 1e6)


def test_latency_is_a_median_and_a_percentile_in_milliseconds() -> None:
    tally = CallTotals()
    assert tally.latency() == (0, 0)
    tally.seconds = [0.002]
    assert tally.latency() == (2, 2)
    tally.seconds = [number / 1_000 for number in range(101)]
    assert tally.latency() == pytest.approx((50, 95))


@pytest.mark.parametrize(
    ("text", "read", "output", "million"),
    [(None, 0.1, OUTPUT, None), ("3", 0.1, OUTPUT, 3), ("2,1", 0.5, OUTPUT, 2), ("1.25,0.125,10", 0.1, 8, 1.25)],
)
def test_prices(text: str | None, read: float, output: float, million: float | None) -> None:
    rates = parse_rates(text)
    assert rates.price.read == pytest.approx(read)
    assert (rates.output, rates.million) == (output, million)


@pytest.mark.parametrize("text", ["", "free", "0", "-3", "3,", "3,-1", "1,2,3,4", "nan", "inf", "3;0.3"])
def test_a_wrong_price_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_rates(text)
    assert caught.value.argument == "price"


def test_the_unmanaged_total_is_the_sum_of_all_requests() -> None:
    simulation = simulate(DEMO, [STRATEGIES["unmanaged"]], [2_000, 100_000], Rates())
    sizes = [COUNTS.of(message) for message in (DEMO.conversations[0].prompt, *MESSAGES) if message is not None]
    calls = [n for n, message in enumerate(MESSAGES, 1) if message.role == "assistant"]
    sent = [sum(sizes[:n]) for n in calls]
    small, large = (one.totals for one in simulation.runs)
    for tally in (small, large):
        assert (tally.calls, tally.tokens, tally.shared) == (len(calls), sum(sent), sum(sent[:-1]))
        assert (tally.openai_refusals, tally.anthropic_refusals, len(tally.seconds)) == (0, 0, len(calls))
        assert tally.facts.shown == tally.facts.total > 20
    assert (small.over, large.over) == (sum(size > 2_000 for size in sent), 0)


def test_quire_is_counted_by_the_same_rule_as_the_others_and_as_its_views() -> None:
    (run_of_quire,) = simulate(DEMO, [STRATEGIES["quire"]], [2_000], Rates()).runs
    views = []
    with quire.open("memory:", budget=2_000) as context:
        context.system(DEMO_TALK.system)
        for message in MESSAGES:
            if message.role == "assistant":
                views.append(context.render())
            context.add(message)
    assert run_of_quire.totals.tokens == sum(view.tokens for view in views)
    assert run_of_quire.totals.shared == sum(view.shared_prefix for view in views)
    assert run_of_quire.totals.cost == pytest.approx(sum(view.cost() for view in views))
    facts = run_of_quire.totals.facts
    assert facts.shown < facts.shown + facts.found == facts.total


def test_the_others_lose_facts_or_break_the_budget_and_a_summary_is_paid_for() -> None:
    lived = {one.kind.name: one.totals for one in simulate(DEMO, select_strategies(None), [2_000], Rates()).runs}
    assert list(lived) == [*STRATEGIES]
    for name, tally in lived.items():
        assert tally.calls == lived["quire"].calls
        if name != "quire":
            assert tally.over or tally.facts.shown < tally.facts.total
    assert lived["quire"].over == lived["quire"].openai_refusals == lived["quire"].anthropic_refusals == 0
    for name in ("summarise", "compact"):
        tally = lived[name]
        assert tally.written == 400 * tally.summary_calls > 0
        assert tally.input_tokens > tally.tokens
    assert lived["summarise"].summary_shared == 0 < lived["compact"].summary_shared


def test_conversations_are_added_up_and_each_begins_with_an_empty_cache() -> None:
    twice = RecordingSet([*DEMO.conversations, *DEMO.conversations], 0)
    for kind in ("quire", "newest", "compact"):
        (one,) = simulate(DEMO, [STRATEGIES[kind]], [2_000], Rates()).runs
        (two,) = simulate(twice, [STRATEGIES[kind]], [2_000], Rates()).runs
        for name in ("calls", "input_tokens", "cached", "cost", "over", "summary_calls"):
            assert getattr(two.totals, name) == pytest.approx(2 * getattr(one.totals, name))


def test_progress_is_called_for_every_model_call(two: Path) -> None:
    calls: list[int] = []
    simulate(read_recordings([str(two)]), select_strategies("newest"), [1_000, 2_000], Rates(), calls.append)
    assert calls == [*range(1, (12 + 8) * 2 * 2 + 1)]


def test_joined_conversations_have_distinct_call_ids(two: Path) -> None:
    recording = join_recordings(read_recordings([str(two)]))
    (one,) = recording.conversations
    assert one.prompt is not None
    assert (recording.calls, recording.messages) == (20, 40)
    ids = [call.id for message in one.messages for call in message.tool_calls]
    assert len(ids) == len(set(ids)) == 10
    assert {message.tool_call_id for message in one.messages if message.role == "tool"} == set(ids)
    (run_of_quire,) = simulate(recording, [STRATEGIES["unmanaged"]], [1_000], Rates()).runs
    assert (run_of_quire.totals.openai_refusals, run_of_quire.totals.anthropic_refusals) == (0, 0)


def test_recordings_are_read_from_all_files_and_those_without_a_call_are_counted(two: Path, tmp_path: Path) -> None:
    silent = write(tmp_path / "silent.jsonl", talk(1)[:2])
    recording = read_recordings([str(two), str(silent)])
    assert describe_recordings(recording) == "40 messages in 2 conversations, 20 model calls (1 more without any)"
    assert (len(recording.conversations), recording.silent, recording.calls) == (2, 1, 20)
    assert read_recordings([str(silent), str(two)], 3).calls == 8
    with pytest.raises(InvalidValue, match=r"holds 3 conversations.*1 to 3, not 4"):
        read_recordings([str(silent), str(two)], 4)
    with pytest.raises(InvalidValue, match="no model call"):
        read_recordings([str(silent)])


def test_every_budget_has_its_table(run: Run, two: Path) -> None:
    ended = run("replay", two, "--budget", "2000,1000")
    assert (ended.code, ended.err) == (0, "")
    shown = plain(ended.out)
    assert "40 messages in 2 conversations, 20 model calls" in shown
    assert shown.index("at a budget of 1,000 tokens") < shown.index("at a budget of 2,000 tokens")
    for name in STRATEGIES:
        assert sum(line.startswith(f"{name} ") for line in shown.splitlines()) == 2
    assert "placeholder of 400 tokens" in shown
    assert "money" not in shown
    assert widest(shown) <= 100
    assert "a sample of 20 facts, at most 40 per conversation" in " ".join(shown.split())


def test_a_table_omits_columns_until_it_fits() -> None:
    heads = table_head(Rates())
    line = ["session-limit", "105,190", "3,506", "95 %", "15,626", "0.42", "4.43", "12/17", "26", "18 → 100 %"]
    widest_one = sum(max(map(len, pair)) + 2 for pair in zip(heads, line, strict=True)) - 2
    for room, left in ((0, []), (1, ["p95"]), (7, ["a call", "p95"]), (16, ["a call", "ms", "p95"])):
        places = fit_columns(heads, [[line], [line]], widest_one - room)
        assert [name for place, name in enumerate(heads) if place not in places] == left


@pytest.mark.broad
@pytest.mark.parametrize("columns", [80, 64])
def test_a_narrow_terminal_gets_narrow_tables_and_whole_notes(
    run: Run, two: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    wide = plain(run("replay", two, "--budget", "1k,2k").out)
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = plain(run("replay", two, "--budget", "1k,2k").out)
    assert widest(shown) <= columns
    assert columns == 80 or "columns that do not fit: " in shown
    notes = wide[wide.index("cost: in plain") :].partition("columns that")[0]
    assert " ".join(notes.split()) in " ".join(shown.split())
    (heads,) = {tuple(line.split()) for line in shown.splitlines() if line.startswith("strategy")}
    assert columns == 80 or "p95" not in heads
    assert {"cached", "cost", "illegal", "over", "facts"} <= set(heads)


def test_the_conversation_of_a_store_is_replayed(run: Run, two: Path, tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    assert run("import", store, two, "--conversation", "all", "-c", "run").code == 0
    words = ("-b", "1k,2k", "--strategies", "newest", "--json")
    *direct, about = run("replay", two, "--conversation", 2, *words).values()
    for where in (store, f"sqlite:{store}"):
        *rows, last = run("replay", where, "-c", "run-2", *words).values()
        assert last == about
        assert [(row["tokens"], row["cost"]) for row in rows] == [(row["tokens"], row["cost"]) for row in direct]
    assert "'run-1'" in run("replay", store, *words).err
    ended = run("import", tmp_path / "other.db", store)
    assert ended.code == 2
    assert "If it is a store of quire" in ended.err
    assert f"run quire export {store} messages.jsonl --format openai" in ended.err


def test_programs_get_a_line_for_every_strategy_and_one_about_all(run: Run, two: Path) -> None:
    *lines, last = run("replay", two, "-b", "1000,2000", "--json", "--price", "3").values()
    nothing = {"calls": 0, "tokens": 0, "cached": 0, "written": 0, "models": {}, "model": None}
    about = {"conversations": 2, "messages": 40, "calls": 20, "unread": 0, "recorded": nothing, "too_small": []}
    assert last == about
    assert [(line["budget"], line["strategy"]) for line in lines] == [
        (budget, name) for budget in (1_000, 2_000) for name in STRATEGIES
    ]
    for line in lines:
        assert line["calls"] == 20
        assert line["money"] == pytest.approx(line["cost"] * 3 / 1e6)
        assert set(line["illegal"]) == {"openai", "anthropic"}
        assert line["facts"]["total"] > 10
    ours = lines[0]
    assert ours["strategy"] == "quire"
    assert ours["over_budget"] == 0
    assert ours["facts"]["shown"] + ours["facts"]["found"] == ours["facts"]["total"]
    assert ours["latency_ms"]["median"] <= ours["latency_ms"]["p95"]


def test_one_conversation_at_one_budget_is_shown_call_by_call_too(run: Run, two: Path) -> None:
    shown = plain(run("replay", two, "--conversation", 1, "-b", 1_000, "--price", "3,0.3,15").out)
    assert "call turn" in shown
    assert "── folded" in shown
    assert sum("look()" in line for line in shown.splitlines()) == 6
    assert "money" in shown
    words = ("--price", "4,2,8", "--json")  # half the price from the cache
    *calls, sums = run("replay", two, "--conversation", 1, "-b", 1_000, *words).values()
    assert len(calls) == 12
    assert all(call["cost"] == call["tokens"] - call["cached"] / 2 for call in calls)
    rows = {row["strategy"]: row for row in sums["strategies"]}
    assert [*rows] == [*STRATEGIES]
    assert rows["quire"]["tokens"] == sums["quire"]["tokens"] == sum(call["tokens"] for call in calls)
    assert rows["newest"]["tokens"] == sums["sliding_window"]["tokens"]
    assert rows["newest"]["cached"] == sums["sliding_window"]["cached"]
    assert sums["quire"]["cost"] == rows["quire"]["cost"] == sum(call["cost"] for call in calls)


def test_strategies_are_chosen_by_name_and_quire_is_always_there(run: Run, two: Path) -> None:
    *lines, _ = run("replay", two, "-b", 2_000, "--strategies", "trim,compact", "--json").values()
    assert [line["strategy"] for line in lines] == ["quire", "trim", "compact"]


def test_a_budget_that_is_too_small_is_reported(run: Run, two: Path) -> None:
    ended = run("replay", two, "-b", "60,2000")
    assert ended.code == 0
    assert "at a budget of 60 tokens too small: " in " ".join(ended.out.split())
    assert run("replay", two, "-b", "60,2000", "--json").values()[-1]["too_small"] == [60]
    refused = run("replay", two, "-b", "50,60")
    assert (refused.code, refused.out) == (1, "")
    assert " 60" in refused.err


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with sessions of Claude Code and Codex, an old session, and a file without a conversation."""
    home = tmp_path / "home"
    claude, codex = home / ".claude/projects/-repo", home / ".codex/sessions/2026/03/11"
    agent = {**CLAUDE_CODE[2], "isSidechain": True, "agentId": "a7"}
    reply = {**CLAUDE_CODE[-2], "isSidechain": True, "agentId": "a7"}
    for folder in (claude / "s1/subagents", codex):
        folder.mkdir(parents=True)
    write_lines(claude / "s1.jsonl", CLAUDE_CODE)
    write_lines(claude / "s1/subagents/agent-a7.jsonl", [agent, reply])
    write_lines(claude / "s0.jsonl", CLAUDE_CODE)
    os.utime(claude / "s0.jsonl", (1, 1))
    write_lines(claude / "empty.jsonl", CLAUDE_CODE[:2])
    write_lines(codex / "rollout-2026-03-11T02-14-09-s2.jsonl", CODEX)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.delenv("CODEX_HOME", raising=False)
    return home


def test_without_a_file_the_sessions_of_the_last_month_are_replayed(run: Run, home: Path) -> None:
    ended = run("replay", "--json")
    *rows, about = ended.values()
    assert {row["strategy"] for row in rows} == {"quire", "unmanaged", "newest", "summarise", "compact"}
    assert {row["budget"] for row in rows} == {32_000, 64_000, 128_000}
    assert (about["conversations"], about["calls"], about["unread"]) == (3, 5, 1)  # the sub-agent is read once
    shown = plain(run("replay").out)
    assert "1 file without a conversation" in shown
    assert "recorded by the client: 3 model calls, 110 input tokens, 0 % from the cache, 54 output tokens" in shown


def test_a_folder_is_replayed_with_the_price_of_its_model(run: Run, home: Path) -> None:
    text = (home / ".claude/projects/-repo/s1.jsonl").read_text().replace("claude-x", "claude-opus-5-20260101")
    (home / ".claude/projects/-repo/s1.jsonl").write_text(text)
    *_, about = run("replay", home / ".claude", "--json").values()
    assert (about["conversations"], about["calls"]) == (3, 5)  # all days
    assert about["recorded"] == {
        "calls": 5, "tokens": 170, "cached": 0, "written": 96, "model": "claude-x",
        "models": {"claude-x": 3, "claude-opus-5-20260101": 2},
    }  # fmt: skip
    *rows, _ = run("replay", home / ".claude/projects/-repo/s1.jsonl", "-b", "8k,9k", "--json").values()
    assert all(row["money"] == pytest.approx(row["cost"] * 5 / 1e6) for row in rows)
    shown = plain(run("replay", home / ".claude/projects/-repo/s1.jsonl", "-b", "8k,9k").out)
    assert "54 output tokens; cost 380, $0.00" in " ".join(shown.split())


def test_without_any_session_the_conversation_of_the_demo_is_replayed(run: Run, home: Path) -> None:
    for folder in (".claude", ".codex"):
        shutil.rmtree(home / folder)
    ended = run("replay")
    assert ended.code == 0
    assert "30 model calls" in plain(ended.out)
    assert ended.err.startswith("no sessions of Claude Code or Codex from the last 30 days")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["FOLDER", "--days", "0"], "--days is '0'; a number of days above 0 is needed"),
        (["FOLDER", "--days", "soon"], "--days is 'soon'"),
        (["FOLDER/s0", "--days", "1"], "holds no session files (*.jsonl) that changed in the last 1 days"),
        (["FOLDER/s0"], "holds no session files (*.jsonl)."),
    ],
)
def test_a_folder_without_sessions_is_refused(run: Run, home: Path, words: list[str], text: str) -> None:
    (home / "s0").mkdir()
    ended = run("replay", *(word.replace("FOLDER", str(home)) for word in words))
    assert (ended.code, ended.out) == (2, "")
    assert text in ended.err


@pytest.mark.parametrize("budgets", ["1000,2000", "1000"])
def test_a_plot_is_a_picture_with_every_strategy_in_it(run: Run, two: Path, tmp_path: Path, budgets: str) -> None:
    picture = tmp_path / "一生.svg"
    ended = run("replay", two, "-b", budgets, "--plot", picture)
    assert (ended.code, ended.err) == (0, f"plot written to {picture}\n")
    root = ElementTree.fromstring(picture.read_text("utf-8"))
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "runs.jsonl: 20 model calls" in texts
    for name in STRATEGIES:  # in each of the three charts
        assert sum(text.startswith(name) for text in texts) == 3
    reach = [text for text in texts if "sampled" in text or "search here" in text]
    assert reach == [
        "facts in the last request or found by a search, of 20 sampled",
        "A summary is a placeholder: facts in a real summary are not counted. Only quire has a search here.",
    ]
    assert run("replay", two, "-b", budgets, "--plot", picture, "--json", "--title", "一生 & more").code == 0
    assert "一生 &amp; more</text>" in picture.read_text("utf-8")  # an older picture is replaced


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-b", "0"], "tokens above 0 are needed"),
        (["-b", "4000,-1"], "tokens above 0 are needed"),
        (["-b", ""], "tokens above 0 are needed"),
        (["-b", "4q"], "--budget is '4q'"),
        (["-b", "4k,"], "such as 8000, 8k or 4000,"),
        (["--strategies", "sumarise"], "Did you mean 'summarise'?"),
        (["--title", "一生"], "but there is no plot"),
        (["--context", "support"], "is not a store"),
        (["--strategies", "oldest"], "'oldest'; one or more of quire, unmanaged, newest"),
        (["--price", "cheap"], "--price is 'cheap'"),
        (["--conversation", "3"], "holds 2 conversations"),
        (["--conversation", "two"], "--conversation is 'two'"),
        (["--plot", "nowhere/life.svg"], "its folder does not exist"),
        (["--plot", "."], "it is a folder"),
        (["--plot", "THE FILE"], "exists and is not an SVG file"),
    ],
)
def test_wrong_options_are_refused_before_the_work(run: Run, two: Path, words: list[str], text: str) -> None:
    before = two.read_bytes()
    ended = run("replay", two, *(str(two) if word == "THE FILE" else word for word in words))
    assert (ended.code, ended.out) == (2, "")
    assert text in ended.err
    assert two.read_bytes() == before


def test_a_plot_replaces_only_svg_files(run: Run, two: Path, tmp_path: Path) -> None:
    other, picture = tmp_path / "pom.xml", tmp_path / "life.svg"
    other.write_text("<?xml version='1.0'?>\n<project/>\n")
    picture.write_text("<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'/>\n")
    ended = run("replay", two, "-b", 2_000, "--plot", other)
    assert (ended.code, "exists and is not an SVG file" in ended.err) == (2, True)
    assert other.read_text().endswith("<project/>\n")
    assert run("replay", two, "-b", 2_000, "--strategies", "newest", "--plot", picture).code == 0


def test_a_plot_that_cannot_be_written_is_told(
    run: Run, two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    ended = run("replay", two, "-b", 2_000, "--plot", tmp_path / "life.svg")
    assert ended.code == 2
    assert "life.svg': No space left on device." in ended.err


def test_ctrl_c_ends_it_and_leaves_no_picture(
    run: Run, two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_: Progress, done: int, what: str = "") -> None:
        if (done, what) == (30, "model calls"):
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "at", stopped)
    ended = run("replay", two, "--plot", tmp_path / "life.svg")
    assert (ended.code, ended.out, ended.err) == (130, "", "")
    assert not (tmp_path / "life.svg").exists()


def test_the_picture_in_the_docs_is_current() -> None:
    assert draw() == PICTURE.read_text(encoding="utf-8"), "run python -m docs.replaying"


def test_the_page_about_it_names_every_strategy_and_every_column() -> None:
    page = (PICTURE.parent.parent / "howto" / "replay.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w-]+)`(?: ✓)? \|", page, re.MULTILINE)
    assert named == [*STRATEGIES]
    columns = [word for row in re.findall(r"^\| ([^`|]+?) \|", page, re.MULTILINE) for word in row.split(", ")]
    assert set(table_head(parse_rates("3"))) - {"strategy"} <= set(columns)


PREFILL = [(0, 100, 10.0), (0, 1_000, 100.0), (1_000, 100, 20.0), (1_000, 1_000, 140.0)]


@pytest.mark.parametrize(
    ("cached", "new", "expected"),
    [
        (0, 100, 10),
        (0, 10, 10),  # not less than the least time
        (0, 550, 55),
        (500, 550, (55 + 80) / 2),
        (1_000, 1_900, 260),  # the line continues
        (2_000, 100, 30),
    ],
)
def test_a_prefill_time_is_linear_between_measurements(cached: int, new: int, expected: float) -> None:
    assert PrefillTimes(PREFILL).milliseconds(cached, new) == pytest.approx(expected)


def test_a_summary_delays_the_request_after_it() -> None:
    totals = CallTotals(prefill={"8B": PrefillTimes(PREFILL)})
    totals.count(100, 0)
    totals.count_summary(1_000, 0, 40)
    totals.count(1_100, 1_000)
    totals.count(1_100, 1_000)
    assert totals.first_token == {"8B": [10, 100 + 20, 20]}


def test_prefill_times_are_printed_for_each_strategy(run: Run, two: Path, tmp_path: Path) -> None:
    path = tmp_path / "prefill.json"
    path.write_text(json.dumps({"device": "a GPU", "unit": "ms", "shapes": {"8B": {"rows": PREFILL}}}))
    arguments = (
        "replay",
        str(two),
        "--budget",
        "1000,2000",
        "--strategies",
        "newest,summarise",
        "--prefill",
        str(path),
    )
    rows = [json.loads(line) for line in run(*arguments, "--json").out.splitlines()][:-1]
    assert {row["strategy"] for row in rows} == {"quire", "newest", "summarise"}
    for row in rows:
        times = row["prefill_ms"]["8B"]
        assert 0 < times["median"] <= times["p95"] < times["total"]
    shown = plain(run(*arguments).out)
    assert re.search(r"to the first token +8B: s +p50 ms +p95 ms\nquire +\d", shown)
    assert "prefill times on a GPU" in shown


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"shapes": {}}', '{"shapes": {"8B": {"rows": []}}}', '{"shapes": {"8B": {"rows": [[0, 1]]}}}',
     '{"unit": "s", "shapes": {"8B": {"rows": [[0, 1, 2]]}}}', '{"shapes": {"8B": {"rows": [[0, 1, 2], [0, 1, 3]]}}}',
     '{"shapes": {"8B": {"rows": [[0, -1, 2]]}}}'],
)  # fmt: skip
def test_wrong_prefill_times_are_refused(run: Run, two: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "prefill.json"
    path.write_text(text)
    done = run("replay", str(two), "--prefill", str(path))
    assert (done.code, done.out) == (2, "")
    assert "prefill" in done.err
