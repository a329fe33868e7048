"""The fact check of summaries: every fact of folded text is in a summary or can be found."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import ToolCall
from quire.model.messages import Message
from quire.model.tokens import VocabularyCounter
from quire.search.page_text import searchable_text
from quire.view.fold.facts import FactCheck
from quire.view.fold.summaries import keep_facts
from quire.view.parts import FactAccount, FoldResult

COUNT = VocabularyCounter().count
DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def told(ctx: quire.Context) -> list[FoldResult]:
    folds: list[FoldResult] = []
    ctx.on_fold(folds.append)
    return folds


def holds(ctx: quire.Context, index: str, fact: str) -> bool:
    """Return whether a page has every word of a fact in its name, its summary or its messages."""
    page = ctx.pages.get_page(index)
    numbers = ctx.pages._engine.current().require_page(index).header.numbers
    messages = [message for message in ctx.messages(all=True) if message.index in numbers]
    text = f"{page.name}\n{page.description}\n{searchable_text(messages)}".casefold()
    return all(word in text for word in fact.casefold().split())


def check_facts(ctx: quire.Context, every: int = 1) -> int:
    """Search every fact of the folded text, or some of them. Return the number of searches."""
    state = ctx.pages._engine.current()
    gate = FactCheck()
    for page in state.segment_pages():
        if page.header.numbers and state.effective_lifecycle(page).name != "ACTIVE":
            gate.read_exchange([state.message(number).message for number in page.header.numbers])
    assert gate.unreachable == []
    asked = list(gate.ranks)[::every]
    for fact in asked:
        hits = ctx.find(fact, limit=5)
        assert any(holds(ctx, hit.index, fact) for hit in hits), fact
    return len(asked)


def talk(ctx: quire.Context, turns: int = 30) -> None:
    for turn in range(turns):
        ctx.user(
            f"Question {turn}: I must fly on May {turn % 28 + 1} for at most ${turn * 7 + 100}, seat {turn}A. 只要窗。"
        )
        arguments = json.dumps({"path": f"C:\\data\\{turn}.csv", "city": "北京", "note": f'say "HAT{turn}"\nnow'})
        ctx.assistant(tool_calls=[ToolCall(f"c{turn}", "search_flights", arguments)])
        ctx.tool_result(f"c{turn}", json.dumps({"price": turn * 31 + 11, "城市": "上海", "error": f"E{turn:03}Error"}))
        ctx.assistant(
            f"Booked HAT{turn} (order #{turn + 5000}), see /tmp/out/{turn}.log, on 5月{turn % 28 + 1}日. "
            + "Well. " * 30
        )
        ctx.render()


def test_no_fact_is_lost_and_each_is_kept_or_found() -> None:
    ctx = quire.open("memory:", budget=1_500)
    folds = told(ctx)
    talk(ctx, 36)
    account = sum((fold.account for fold in folds), FactAccount(0, 0))
    assert account.lost == account.unread == 0
    assert account.kept > 50
    assert account.reachable > 50
    assert check_facts(ctx) > 300


def test_what_stands_escaped_in_json_can_be_found_as_a_person_writes_it() -> None:
    ctx = quire.open("memory:")
    ctx.user("Look")
    arguments = json.dumps({"city": "北京", "path": "C:\\new\\table.txt", "quote": 'a "b"'})
    ctx.assistant(tool_calls=[ToolCall("c", "look", arguments)])
    ctx.tool_result("c", json.dumps({"城市": "上海"}))
    ctx.assistant("Done.")
    for query in ("北京", "上海 城市", r"C:\new\table.txt", 'a "b"'):
        assert [hit.index for hit in ctx.find(query)] == ["usr-2"], query


def test_names_transcripts_and_files_can_be_found() -> None:
    messages = [
        Message(role="user", name="mia_li_3668", content="Hi"),
        Message(role="assistant", content=[{"type": "audio", "id": "a1", "transcript": "Gate B42 it is"}]),
    ]
    gate = FactCheck()
    gate.read_exchange(messages)
    assert {"mia_li_3668", "B42"} <= gate.ranks.keys()
    assert gate.unreachable == []


def test_pages_where_the_words_stand_together_come_first() -> None:
    ctx = quire.open("memory:")
    for n in range(8):
        ctx.user(f"In May we had {n} guests, 20 of them old. " + "May is mild. 20 more. " * n)
    ctx.user("We leave on May\n20, all of us, whatever the weather may be, and this goes on for a while. " * 3)
    assert ctx.find("may 20", limit=1)[0].index == "usr-9"


def test_a_fact_that_find_does_not_reach_is_put_into_the_summary() -> None:
    gate = FactCheck()
    gate.read_text("The code is HAT136 and the date 2024-05-20.", reach="The date 2024-05-20 is known.")
    assert gate.unreachable == ["HAT136"]
    assert gate.account("nothing") == FactAccount(0, 1, 1)
    text, account = keep_facts("name", "A summary.", gate)
    assert "HAT136" in text
    assert account == FactAccount(1, 1, 0)


def test_facts_of_very_long_texts_are_listed_at_both_ends_and_the_rest_is_reported() -> None:
    gate = FactCheck()
    text = "START1 " + "middle22 word " * 100_000 + " END99"
    gate.read_exchange([Message(role="tool", tool_call_id="c", content=text)])
    assert {"START1", "END99"} <= gate.ranks.keys()
    assert gate.unread == len(text) - 600_000
    assert gate.account("START1").unread == gate.unread
    assert gate.unreachable == []


def test_what_the_user_insists_on_comes_first_in_the_summary() -> None:
    ctx = quire.open("memory:", budget=1_000)
    for turn in range(12):
        ctx.user(f"Hello again, number {turn}. " + "Some words. " * 10 + f"The price must stay under ${turn + 300}.")
        ctx.assistant("Fine. " * 60)
        ctx.render()
    lines = [page.description for page in pages_of(ctx) if page.description]
    assert any(line.startswith("The price must stay under $") for line in lines)


def test_a_summary_takes_at_most_a_tenth_of_what_it_stands_for() -> None:
    ctx = quire.open("memory:", budget=4_000)
    talk(ctx, 60)
    folded = [page for page in pages_of(ctx) if page.line_tokens and page.level <= 1]
    assert len(folded) > 20
    for page in folded:
        assert COUNT(page.description) <= page.tokens / 10
        assert page.summary_tokens == COUNT(page.description)


def test_a_text_page_in_the_conversation_keeps_its_facts_too() -> None:
    ctx = quire.open("memory:", budget=800)
    folds = told(ctx)
    ctx.pages.create_detail_page("Plan", "", "The plan is PLAN77. " + "word " * 150, "usr-0")
    for _ in range(12):
        ctx.user("more " * 60)
        ctx.render()
    assert folds
    page = ctx.pages.get_page("usr-1")
    assert "PLAN77" in page.description


def pages_of(ctx: quire.Context) -> list[Any]:
    """Return the headers of all folded pages."""
    state = ctx.pages._engine.current()
    return [page.header for page in state.segment_pages() if page.header.line_tokens]


@pytest.mark.parametrize(
    ("name", "least"), [("tau_airline", 0.085), pytest.param("swe_agent", 0.13, marks=pytest.mark.slow)]
)
def test_the_facts_of_recorded_conversations_are_kept_or_found(name: str, least: float) -> None:
    path = DATA / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip("the recorded conversations are not here")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        runs = [json.loads(next(lines)) for _ in range(4)]
    ctx = quire.open("memory:", budget=4_000)
    folds = told(ctx)
    for run in runs:
        for message in run["messages"]:
            if message["role"] != "system":
                ctx.add(message)
            if message["role"] == "user":
                ctx.render()
    account = sum((fold.account for fold in folds), FactAccount(0, 0))
    assert account.lost == 0
    assert account.kept > least * (account.kept + account.reachable)  # a line has three facts; the others are found
    assert check_facts(ctx, every=7) > 30
