"""Answers of tools fit into the view without clipping, and the next step that they name is correct."""

import json
from typing import Any

import pytest

import quire
from quire import Context, ToolCall

ENGLISH = "".join(f"Reading {number}: the pump at pier {number % 91} ran well.\n" for number in range(300))
CHINESE = "".join(f"第{number}次读数：码头的水泵运转正常，没有别的可说。" for number in range(160))
PAGES = {"English": ENGLISH, "Chinese": CHINESE, "one long word": "水" * 3_000, "blanks": " " * 9_000 + "\n" * 9_000}


def new_context(budget: int, text: str = "") -> Context:
    ctx = quire.open("memory:", budget=budget)
    ctx.system("You are a careful engineer.")
    ctx.pages.create_detail_page("Log", "all readings", text, "mem-0")
    ctx.pages.hide("mem-1")
    ctx.user("What does the log say?")
    return ctx


def answered(ctx: Context, number: int, name: str, arguments: dict[str, Any]) -> str:
    """Return the answer to a model's call as the next view shows it."""
    ctx.assistant(None, [ToolCall(f"c{number}", name, json.dumps(arguments))])
    said = ctx.tools.call(name, arguments)
    ctx.tool_result(f"c{number}", said)
    messages = ctx.render().openai()
    assert messages[-1]["content"] == said
    return said


def quote(text: str) -> str:
    """Return a text as an answer quotes it."""
    return "".join(line if line in ("\n", "") else f" {line}" for line in text.splitlines(keepends=True))


def unquote(text: str) -> str:
    """Return the text that an answer quotes."""
    return "".join(line.removeprefix(" ") for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("budget", [2_000, 8_000])
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("length", [{}, {"length": 1 << 40}], ids=["usual", "all"])
def test_a_model_that_follows_the_hint_reads_every_character(budget: int, page: str, length: dict[str, int]) -> None:
    text = PAGES[page]
    ctx = new_context(budget, text)
    found, start = "", 0
    for number in range(100):
        said = answered(ctx, number, "read_page", {"page": "mem-1", "start": start, **length})
        assert ctx.pages.counter.count(said) <= (budget // 4 if length else budget // 6)
        body, foot, _ = said.rpartition("\n[characters ")
        found += unquote(body if foot else said)
        if "Go on with" not in said:
            break
        assert body
        start = int(said.rpartition("start=")[2].removesuffix(".]"))
        assert start == len(found)
    assert found == text


def test_a_small_page_is_read_in_one_go() -> None:
    assert new_context(2_000, ENGLISH[:800]).tools.call("read_page", {"page": "mem-1"}) == quote(ENGLISH[:800])


def test_a_piece_ends_between_words_and_has_the_length_that_was_asked_for() -> None:
    tools = new_context(2_000, ENGLISH).tools
    assert tools.call("read_page", {"page": "mem-1"}).rpartition("\n[")[0][-1].isspace()
    assert tools.call("read_page", {"page": "mem-1", "length": 3}).startswith(" Rea\n[characters 0–3 of")


def test_what_is_reserved_and_prompts_are_no_room() -> None:
    ctx = new_context(8_000, ENGLISH)
    sizes = [len(ctx.tools.call("read_page", {"page": "mem-1"}))]
    ctx.render(reserve=4_000)
    sizes.append(len(ctx.tools.call("read_page", {"page": "mem-1"})))
    ctx.system("Be careful. " * 600)
    sizes.append(len(ctx.tools.call("read_page", {"page": "mem-1"})))
    assert sizes == sorted(set(sizes), reverse=True)


def test_calls_made_together_share_the_room() -> None:
    ctx = new_context(2_000, CHINESE)
    ctx.assistant(None, [ToolCall(f"c{n}", "read_page", '{"page": "mem-1", "length": 9000}') for n in range(5)])
    said = [ctx.tools.call(call) for call in ctx.pending_calls()[:1]]
    while pending := ctx.pending_calls():
        ctx.tool_result(pending[0].id, said[-1])
        said += [ctx.tools.call(call) for call in ctx.pending_calls()[:1]]
    assert [message["content"] for message in ctx.render().openai()[-5:]] == said


@pytest.mark.parametrize("word", ["reading", "读数"])
@pytest.mark.parametrize("limit", [{}, {"limit": 1_000}], ids=["usual", "many"])
def test_hits_have_room(word: str, limit: dict[str, int]) -> None:
    ctx = new_context(2_000)
    for number in range(30):
        ctx.pages.create_detail_page(f"Log {number}", "", f"{ENGLISH[:300]} {CHINESE[:300]} {number}", "mem-0")
    said = answered(ctx, 1, "find", {"query": word, **limit})
    assert ctx.pages.counter.count(said) <= (500 if limit else 333)
    hits = [line for line in said.splitlines() if line.startswith("[mem-")]
    assert all("«" in line and "»" in line for line in hits)
    if limit:
        assert said.splitlines()[-1] == f"… {30 - len(hits)} more that have no room here: ask more exactly."
    else:
        assert len(hits) == 5


def test_lists_have_room_and_go_on_where_they_ended() -> None:
    ctx = new_context(2_000)
    for number in range(30):
        ctx.pages.create_detail_page(f"码头 {number}", "水泵运转正常。" * 20, "", "mem-0")
    for arguments in ({"page": "mem-0"}, {}):
        names: list[str] = []
        start = 0
        for number in range(100):
            lines = answered(ctx, len(ctx.messages()), "read_page", {**arguments, "start": start}).splitlines()
            more = lines.pop() if lines[-1].startswith("…") else ""
            names += [line.strip() for line in lines if "码头" in line]
            if not more:
                break
            assert ctx.pages.counter.count("\n".join(lines)) <= 500, number
            start = int(more.partition("start=")[2].removesuffix("."))
        assert [name.partition("]")[0] for name in names] == [f"[mem-{number} 0" for number in range(2, 32)]
