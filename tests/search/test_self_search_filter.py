"""Searches in the conversation itself: they never rank before the page that they quote, and can still be found."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import quire
from quire import Context, Message, Storage, ToolCall
from quire.agent.tool_table import TOOLS
from quire.search import self_search_filter as echoes
from quire.search.self_search_filter import is_echo
from tests.agent.test_answers import call_of
from tests.search.storages import storage_of

TURNS = 12


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


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
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


@pytest.mark.broad
def test_earlier_searches_give_way_before_the_passages_of_what_they_quote() -> None:
    with quire.open("memory:", budget=2_000) as ctx:
        said = (
            "Please remember, now and for ever, that the number of the locker at the old pool is 48213, until summer."
        )
        ctx.user(said)
        for turn in range(40):
            ctx.user(f"Question {turn}?")
            said = called(ctx, turn, "find", {"query": "number of the locker at the old pool", "limit": 50})
            assert "«the number of the locker at the old pool» is 48213, until summer." in said.splitlines()[0]
            ctx.assistant("48213.")
        assert "These are earlier searches:" in said  # as many of them as fit
        assert said.count("[usr-") < 40


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


def test_an_exchange_that_becomes_another_is_looked_at_again() -> None:
    ctx = opened(quire.MemoryStorage(), TALKS["English"])
    ctx.user("Which bird?")
    called(ctx, 1, "find", {"query": "kestrel"})
    assert ctx.find("kestrel")[0].echo
    ctx.undo(ctx.seq)
    ctx.tool_result("c1", "The kestrel nests on the tower.")
    assert not ctx.find("kestrel")[0].echo


@pytest.mark.parametrize("whole", [4_000, 10], ids=["whole", "long"])
@pytest.mark.parametrize("language", TALKS)
def test_recall_brings_back_the_page_and_no_search_for_it(
    language: str, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.search.recall.MAX_WHOLE", whole)
    monkeypatch.setattr("quire.search.recall._MAX_FOUND", 12)
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


def test_meaning_does_not_bring_an_echo_before_the_page_it_quotes() -> None:
    talk = TALKS["English"]

    def letters(texts: list[str]) -> list[list[int]]:
        return [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    ctx = quire.open("memory:", budget=1_500, embedder=letters)
    ctx.user(talk.fact)
    for turn in range(TURNS):
        ctx.user(talk.small.format(turn))
        called(ctx, turn, "find", {"query": talk.query})
    hits = ctx.find(talk.query, 100)
    assert hits[0].index == "usr-1"
    assert [hit.echo for hit in hits] == sorted(hit.echo for hit in hits)
    assert sum(hit.echo for hit in hits) == TURNS


def exchange(name: str, arguments: str, result: str | None = None, says: str = "") -> list[Message]:
    messages = [Message(role="assistant", content=says, tool_calls=(ToolCall("c1", name, arguments),))]
    return messages if result is None else [*messages, Message(role="tool", content=result, tool_call_id="c1")]


QUERY = '{"query": "水泵"}'
ECHOES = [
    exchange("find", QUERY, "[usr-12] 水泵: …"),
    exchange("mcp__quire__find", '{"query": "pump", "limit": 3}', "Not all of the query is in these:\n[mem-1] Pump: …"),
    exchange("find", QUERY, "Nothing found for '水泵'. Try fewer or other words."),
    exchange("find", QUERY, "QuotaExceeded: 50 tool calls in this turn are the limit"),
    exchange("find", QUERY),
    exchange("read_page", '{"page": "usr-12", "start": 20}', "whatever it says"),
    exchange("read_page", '{"page": "[usr-12 40]"}', "whatever it says", says="Let me see."),
    exchange("read_page", "{}", "[usr-0 3 pages] Conversation\n  [usr-1 20] pump"),
    exchange("archive", '{"page": "usr-12"}', "Archived usr-12; expand_details brings it back."),
]
OTHERS = [
    exchange("find", QUERY, "src/pump.py:12: def pump()"),
    exchange("find", QUERY, "[sec-12] a page of a segment that is not seen"),
    exchange("find", '{"query": "x", "path": "/"}', "[usr-12] pump: …"),
    exchange("find", '{"path": "/"}'),
    exchange("find", "[1]", "[usr-12] pump: …"),
    exchange("find", "{", "[usr-12] pump: …"),
    exchange("read_page", '{"page": "https://example.org/usr-12"}', "a page of the web"),
    exchange("read_page", '{"page": 3}', "a page of a book"),
    exchange("archive", '{"invoice": 12}', "done"),
    exchange("write_page", '{"name": "Pump", "text": "It is blue."}', "Wrote mem-3."),
    exchange("find", QUERY, "[usr-12] pump: …", says="The pump is blue, as we know. " * 11),
    [*exchange("find", QUERY, "[usr-12] pump: …"), *exchange("ls", "{}")],
    [Message(role="user", content="[usr-12] pump")],
    [Message(role="tool", content="[usr-12] pump", tool_call_id="c1")],
    [],
]


@pytest.mark.parametrize("messages", ECHOES)
def test_calls_of_quires_tools_make_an_echo(messages: list[Message]) -> None:
    assert is_echo(messages, {"usr", "mem"})


@pytest.mark.parametrize("messages", OTHERS)
def test_other_calls_and_words_make_none(messages: list[Message]) -> None:
    assert not is_echo(messages, {"usr", "mem"})


def test_the_tools_that_echo_are_in_the_table_and_only_read_or_point_at_pages() -> None:
    known = {tool.name: tool for tool in TOOLS}
    assert [known[name].read_only for name in (echoes.FIND_TOOL, echoes.READ_TOOL)] == [True, True]
    for name in echoes.OTHER_TOOLS:
        assert {parameter.kind for parameter in known[name].parameters} <= {"page", "boolean"}
