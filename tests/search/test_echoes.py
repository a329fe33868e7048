"""Searches in the conversation itself: they never rank before the page that they quote, and can still be found."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import quire
from quire import Context, Storage
from tests.marks import servers
from tests.search.storages import storage_of

TURNS = 4


class Talk(NamedTuple):
    """A fact, a model's query for it, and the text around it."""

    fact: str
    query: str
    needle: str
    question: str
    answer: str
    small: str


TALKS = {
    "English": Talk(
        "By the way, the escrow account for the Keller house is DE-4471-9902, opened at the Lindau branch in March.",
        "Keller house escrow account number",
        "DE-4471-9902",
        "Turn {}: we have to pay again. What do I write on the form?",
        "Write DE-4471-9902.",
        "The weather on day {} was dull, and the pumps at the pier ran without any trouble until the evening.",
    ),
    "Chinese": Talk(
        "顺便说一下，凯勒家房子的托管账户是DE-4471-9902，三月份在林道分行开的。",
        "凯勒 托管账户 号码",
        "DE-4471-9902",
        "第{}次：又要付款了，表格上该写什么？",
        "请写DE-4471-9902。",
        "第{}天天气阴沉，码头的水泵一直运转到傍晚，没有任何问题，也没有别的可说。",
    ),
}


def call_of(number: int, name: str, arguments: str) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def opened(storage: Storage, talk: Talk, budget: int = 900, turns: int = 30) -> Context:
    """Return a conversation that began with the fact, which is folded by now."""
    ctx = quire.open(storage, budget=budget)
    ctx.system("You are a careful clerk.")
    ctx.user(talk.fact)
    ctx.assistant("Noted.")
    for number in range(turns):
        ctx.user(talk.small.format(number))
        ctx.assistant("OK.")
    ctx.render()
    return ctx


def called(ctx: Context, number: int, name: str, arguments: dict[str, Any], *, prefix: str = "", says: str = "") -> str:
    """Add a model's tool call and its result, as in an agent's loop."""
    call = call_of(number, prefix + name, json.dumps(arguments, ensure_ascii=False))
    ctx.assistant(says or None, [call])
    said = ctx.tools.prefixed(prefix).call(call)
    ctx.tool_result(f"c{number}", said)
    return said


@pytest.fixture(params=["memory", "sqlite", *servers("postgres")])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    with closing(storage_of(request.param, tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize("language", TALKS)
def test_a_fact_stays_the_first_hit_however_often_it_was_searched(storage: Storage, language: str) -> None:
    talk = TALKS[language]
    ctx = opened(storage, talk)
    fact = ctx.find(talk.needle)[0].index
    assert ctx.why(fact).shown == "no"
    for turn in range(TURNS):
        ctx.user(talk.question.format(turn))
        ctx.render()
        prefix = "quire_" if turn % 3 == 2 else ""
        says = f"I look for: {talk.query}" if turn % 2 else ""
        said = called(ctx, 2 * turn, "find", {"query": talk.query}, prefix=prefix, says=says)
        assert next(line for line in said.splitlines() if line.startswith("[")).startswith(f"[{fact}]"), said
        said = called(ctx, 2 * turn + 1, "read_page", {"page": fact}, prefix=prefix)
        assert talk.fact in said
        ctx.assistant(talk.answer)
        assert ctx.find(talk.query, 1)[0].index == fact
    for query in (talk.query, talk.fact):
        assert {ctx.find(query, limit)[0].index for limit in (1, 3, 10, 100)} == {fact}
    hits = ctx.find(talk.query, 200)
    assert sum(hit.echo for hit in hits) == 2 * TURNS
    assert [hit.echo for hit in hits] == sorted(hit.echo for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    ctx.user(talk.query)
    view = ctx.render(recall=True)
    assert talk.fact in str(view.tail[0].messages[0].content)
    ctx.close()


def test_what_only_a_search_holds_is_found_and_told_as_such() -> None:
    ctx = opened(quire.MemoryStorage(), TALKS["English"], budget=8_000, turns=3)
    ctx.user("And the other thing?")
    called(ctx, 1, "find", {"query": "kestrel nest"})
    hit = ctx.find("kestrel")[0]
    assert (hit.echo, hit.complete) == (True, True)
    assert "«kestrel»" in hit.snippet
    assert ctx.find("kestrel", role="tool") == [hit]
    assert [one.index for one in ctx.find('"kestrel nest"')] == [hit.index]
    assert [one.index for one in ctx.agent.find("kestrel")] == [hit.index]
    ctx.user("Again, please.")
    said = called(ctx, 2, "find", {"query": "kestrel nest pumps", "limit": 50})
    assert said.index("Not all of the query is in these:") < said.index("These are earlier searches:")
    assert said.splitlines()[-1].startswith(f"[{hit.index}] find: ")


@pytest.mark.parametrize("language", TALKS)
def test_a_tool_of_the_users_that_is_called_find_is_found_as_ever(language: str) -> None:
    talk = TALKS[language]
    ctx = opened(quire.MemoryStorage(), talk)
    ctx.user(talk.question.format(1))
    ctx.assistant(None, [call_of(1, "find", json.dumps({"query": talk.query}, ensure_ascii=False))])
    assert ctx.find(talk.query)[-1].echo  # so far it could be a search of quire: it contains only the query
    ctx.tool_result("c1", f"{talk.query}: ZX-81-5")
    ctx.user(talk.question.format(2))
    assert [(hit.name, hit.echo) for hit in ctx.find(f"{talk.query} ZX-81-5", 1)] == [("find", False)]
    assert not any(hit.echo for hit in ctx.find(talk.query, 100))
    for number in range(40):
        ctx.user(talk.small.format(number))
    ctx.user(talk.query)
    assert "ZX-81-5" in str(ctx.render(recall=True).tail[0].messages[0].content)


@pytest.mark.parametrize("language", TALKS)
def test_recall_brings_back_the_page_and_no_search_for_it(language: str) -> None:
    talk = TALKS[language]
    ctx = opened(quire.MemoryStorage(), talk, budget=1_500)
    for turn in range(TURNS):
        ctx.user(talk.small.format(100 + turn))
        called(ctx, turn, "find", {"query": talk.query})
        ctx.assistant("OK.")
    ctx.user(talk.query)
    view = ctx.render(recall=True)
    back = str(view.tail[0].messages[0].content)
    assert talk.fact in back
    assert [mark for mark in ("[usr-", "«") if mark in back] == []
