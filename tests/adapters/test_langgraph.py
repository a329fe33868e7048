"""LangGraph's store: the same operations give the same results as LangGraph's own store in memory."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.config import get_store
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

import quire
from quire.adapters.langgraph import QuireStore
from tests.adapters.langchain_models import Scripted


@pytest.fixture
def store() -> QuireStore:
    return QuireStore(quire.MemoryStorage())


# Equal to LangGraph's own store

LABELS: Any = st.sampled_from(["users", "docs", "一", "v1"])
NAMESPACES: Any = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS: Any = st.sampled_from(["a", "b", "key c", "键", "line\nbreak", "x" * 300, ""])
LEAVES: Any = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.sampled_from(["red", "红色", ""])
VALUES: Any = st.dictionaries(
    st.sampled_from(["color", "size", "deep"]),
    LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.sampled_from(["color", "size"]), LEAVES, max_size=2),
    max_size=3,
)
FILTERS: Any = st.one_of(
    st.none(),
    VALUES,
    st.dictionaries(
        st.sampled_from(["color", "size"]),
        st.dictionaries(st.sampled_from(["$eq", "$ne"]), LEAVES, min_size=1, max_size=2),
        max_size=2,
    ),
)
PATHS: Any = st.lists(LABELS | st.just("*"), min_size=1, max_size=2).map(tuple)
CONDITIONS: Any = st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), PATHS)
OPS: Any = st.one_of(
    st.builds(PutOp, NAMESPACES, KEYS, VALUES | st.none(), st.sampled_from([None, False, ["color"]]), st.none()),
    st.builds(PutOp, NAMESPACES, KEYS, VALUES, st.none(), st.none()),
    st.builds(GetOp, NAMESPACES, KEYS, st.just(True)),
    st.builds(
        SearchOp,
        st.lists(LABELS, max_size=2).map(tuple),
        FILTERS,
        st.just(1_000),
        st.just(0),
        st.sampled_from([None, "red", "红色", "nothing"]),
        st.just(True),
    ),
    st.builds(
        ListNamespacesOp,
        st.none() | st.lists(CONDITIONS, min_size=1, max_size=2).map(tuple),
        st.none() | st.integers(1, 3),
        st.just(1_000),
        st.just(0),
    ),
)


def plainly(result: Any) -> Any:
    """Return a result without times and scores, and without the order of a search."""
    if isinstance(result, Item):
        return result.namespace, result.key, repr(result.value)
    if isinstance(result, list) and result and isinstance(result[0], SearchItem):
        return Counter(map(plainly, result))
    return Counter() if result == [] else result


def of_memory(oracle: InMemoryStore, ops: Sequence[Op]) -> list[Any]:
    """Return the results of LangGraph's store. Remove empty namespaces, which it creates when they are read."""
    results = oracle.batch(ops)
    for namespace in [namespace for namespace, items in oracle._data.items() if not items]:
        del oracle._data[namespace]
    return list(map(plainly, results))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(OPS, max_size=4), max_size=6))
def test_the_same_operations_give_the_same_answers(batches: list[list[Op]]) -> None:
    backend = quire.MemoryStorage()
    oracle, store = InMemoryStore(), QuireStore(backend)
    for ops in batches:
        parts = [[op for op in ops if isinstance(op, kind)] for kind in (GetOp, SearchOp | PutOp, ListNamespacesOp)]
        for part in parts:  # reading creates a namespace in memory, so listing runs alone
            assert list(map(plainly, store.batch(part))) == of_memory(oracle, part)
    everything: list[Op] = [SearchOp((), limit=1_000), ListNamespacesOp(limit=1_000)]
    expected = of_memory(oracle, everything)
    assert list(map(plainly, store.batch(everything))) == expected
    assert list(map(plainly, QuireStore(backend).batch(everything))) == expected
    assert store.ctx.check() == []


def test_a_batch_reads_what_was_before_its_puts(store: QuireStore) -> None:
    store.put(("a",), "k", {"n": 1})
    seq = store.ctx.seq
    ops: list[Op] = [
        PutOp(("a",), "k", {"n": 2}),
        PutOp(("a",), "k", {"n": 3}),
        GetOp(("a",), "k"),
        PutOp(("b",), "k", {}),
    ]
    before = store.batch(ops)[2]
    assert isinstance(before, Item)
    assert before.value == {"n": 1}
    found = store.get(("a",), "k")
    assert found is not None
    assert found.value == {"n": 3}
    assert store.ctx.seq == seq + 1


# Further behaviour


def test_nothing_is_lost_by_a_put_over_a_key_or_a_delete(store: QuireStore) -> None:
    def value() -> object:
        found = store.get(("users", "1"), "prefs")
        return found and found.value

    store.put(("users", "1"), "prefs", {"theme": "dark"})
    store.put(("users", "1"), "prefs", {"theme": "light"})
    assert value() == {"theme": "light"}
    store.ctx.undo(store.ctx.seq)
    assert value() == {"theme": "dark"}
    store.delete(("users", "1"), "prefs")
    assert value() is None
    assert store.list_namespaces() == []
    store.ctx.undo(store.ctx.seq)
    assert value() == {"theme": "dark"}


def test_an_item_keeps_the_time_it_was_made(store: QuireStore) -> None:
    store.put(("a",), "k", {"n": 1})
    made = store.get(("a",), "k")
    store.put(("a",), "k", {"n": 2})
    changed = store.get(("a",), "k")
    assert made is not None
    assert changed is not None
    assert changed.created_at == made.created_at <= changed.updated_at


def test_what_answers_the_query_comes_first_with_a_score(store: QuireStore) -> None:
    store.put(("m",), "tea", {"text": "The user likes green tea in the morning"})
    store.put(("m",), "cat", {"text": "用户的猫叫小花"})
    store.put(("m",), "car", {"text": "drives an old car"})
    for query, key in (("green tea", "tea"), ("小花", "cat")):
        found = store.search(("m",), query=query)
        assert found[0].key == key
        assert [item.score is None for item in found] == [False, True, True]
    assert [item.key for item in store.search(("m",), query="tea", limit=1)] == ["tea"]
    assert len(store.search(("m",), query="tea", limit=5, offset=1)) == 2
    assert store.search(("other",), query="tea") == []


def test_what_is_not_indexed_is_there_and_not_found(store: QuireStore) -> None:
    store.put(("m",), "secret", {"text": "kestrel"}, index=False)
    store.put(("m",), "part", {"title": "osprey", "text": "kestrel"}, index=["title"])
    store.put(("m",), "whole", {"title": "heron", "text": "kestrel"})
    scored = {item.key for item in store.search(("m",), query="kestrel") if item.score is not None}
    assert scored == {"whole"}
    assert {item.key for item in store.search(("m",), query="osprey") if item.score is not None} == {"part"}
    assert store.get(("m",), "secret") is not None


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ({"n": {"$gt": 2}}, "3"),
        ({"n": {"$gte": 2, "$lt": 3}}, "2"),
        ({"n": {"$lte": 1.5}}, "1"),
        ({"n": {"$ne": 2}}, "13"),
        ({"day": {"$gt": "2026-05-01"}}, "23"),
        ({"n": {"$gt": 0}, "day": "2026-05-02"}, "2"),
        ({"deep": {"n": {"$gte": 3}}}, "3"),
        ({"absent": {"$gt": 1}}, ""),
    ],
)
def test_filters_compare(store: QuireStore, condition: dict[str, Any], keys: str) -> None:
    for n in (1, 2, 3):
        store.put(("a",), str(n), {"n": n, "day": f"2026-05-0{n}", "deep": {"n": n}})
    assert "".join(item.key for item in store.search(("a",), filter=condition)) == keys


def test_a_search_is_gone_through_in_parts(store: QuireStore) -> None:
    for n in range(25):
        store.put(("a", str(n % 3)), str(n), {"n": n, "text": f"tea {n}"})
    for query in (None, "tea", "7"):
        found = [
            item.key for start in range(0, 30, 4) for item in store.search(("a",), query=query, limit=4, offset=start)
        ]
        assert sorted(found, key=int) == [str(n) for n in range(25)]


def test_bad_input_is_told_and_changes_nothing(store: QuireStore) -> None:
    seq = store.ctx.seq
    for value, word in (({"it": object()}, "not JSON serializable"), ("text", "a dict is needed")):
        with pytest.raises(quire.InvalidValue, match=word):
            store.batch([PutOp(("a",), "ok", {}), PutOp(("a",), "k", value)])  # type: ignore[arg-type]
    store.put(("a",), "k", {})
    with pytest.raises(quire.InvalidValue, match=r"\$like"):
        store.search(("a",), filter={"n": {"$like": 1}})
    with pytest.raises(quire.InvalidValue, match="offset is -1"):
        store.search((), offset=-1)
    for ttl in (0, -1, True, "5", float("nan"), float("inf")):
        with pytest.raises(quire.InvalidValue, match="ttl"):
            store.batch([PutOp(("a",), "k", {}, ttl=ttl)])  # type: ignore[arg-type]
    for namespace in (("foo", 1), "foo", ("a", None), 5):
        for op in (PutOp(namespace, "k", {}), GetOp(namespace, "k"), SearchOp(namespace)):  # type: ignore[arg-type]
            with pytest.raises(InvalidNamespaceError, match="namespace is") as raised:
                store.batch([op])
            assert isinstance(raised.value, quire.InvalidValue)
    assert store.ctx.seq == seq + 1


def test_another_store_on_the_same_file_is_seen(tmp_path: Path) -> None:
    with QuireStore(tmp_path / "a.db") as one, QuireStore(tmp_path / "a.db") as two:
        for n in range(6):
            (one, two)[n % 2].put(("shared",), str(n), {"n": n})
            assert len(one.search(("shared",), limit=100)) == len(two.search(("shared",), limit=100)) == n + 1
        two.delete(("shared",), "0")
        assert one.get(("shared",), "0") is None
        one.ctx.undo(two.ctx.seq)
        assert two.get(("shared",), "0") is not None


def test_many_at_once(store: QuireStore) -> None:
    async def use() -> None:
        await asyncio.gather(*(store.aput(("a",), str(n), {"n": n}) for n in range(20)))
        found = await asyncio.gather(*(store.aget(("a",), str(n)) for n in range(20)))
        assert [item.value for item in found if item is not None] == [{"n": n} for n in range(20)]
        assert await store.alist_namespaces(prefix=("a",)) == [("a",)]

    asyncio.run(use())


def test_an_agent_of_the_context_may_find_and_not_change_it() -> None:
    ctx = quire.open(quire.MemoryStorage(), budget=2_000)
    store = QuireStore(ctx)
    for n in range(60):
        store.put(("users", str(n)), "prefs", {"text": f"user {n} likes number {n} " * 20})
    ctx.user("hi")
    view = ctx.render()
    assert view.tokens < 600
    hit = ctx.agent.find("likes number 42")[0]
    assert "likes number 42" in ctx.tools.call("read_page", {"page": hit.index})
    assert "PermissionDenied" in ctx.tools.call("remove_page", {"page": hit.index})


def test_a_graph_remembers_across_threads_and_restarts(tmp_path: Path) -> None:
    @tool
    def remember(fact: str) -> str:
        """Keep a fact."""
        get_store().put(("facts",), fact[:20], {"text": fact})
        return "kept"

    @tool
    def remembered(about: str) -> str:
        """Look for a fact."""
        return "\n".join(item.value["text"] for item in get_store().search(("facts",), query=about, limit=1))

    def play(messages: list[BaseMessage]) -> AIMessage:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            return AIMessage(last.text)
        name, _, said = last.text.partition(" ")
        call: Any = {"name": name, "args": {"fact" if name == "remember" else "about": said}, "id": "1"}
        return AIMessage("", tool_calls=[call])

    def ask(text: str) -> str:
        with QuireStore(tmp_path / "memory.db") as store:
            agent = create_agent(Scripted(play=play), [remember, remembered], store=store)
            return str(agent.invoke({"messages": [HumanMessage(text)]})["messages"][-1].text)

    for n in range(12):
        ask(f"remember the {n}th door opens with key {n * 7}")
    assert ask("remembered key 63") == "the 9th door opens with key 63"


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    value: object = "x"
    for _ in range(5_000):
        value = {"a": value}
    with pytest.raises(quire.InvalidValue, match="cannot be stored as JSON"):
        QuireStore("memory:").put(("a",), "k", {"v": value})


# Time to live


class Times:
    """A clock that a test sets, in minutes."""

    def __init__(self, store: QuireStore) -> None:
        self._start = store.ctx.pages._engine.clock()
        self.minutes = 0.0
        store.ctx.pages._engine.clock = lambda: self._start + round(self.minutes * 60_000)


def test_items_expire_after_their_last_use() -> None:
    store = QuireStore(quire.MemoryStorage(), ttl={"default_ttl": 10, "refresh_on_read": True})
    times = Times(store)
    store.put(("m",), "short", {"text": "kestrel"}, ttl=1)
    store.put(("m",), "usual", {"text": "kestrel"})
    store.put(("m",), "kept", {"text": "kestrel"}, ttl=None)
    times.minutes = 1
    assert {item.key for item in store.search(("m",), query="kestrel", refresh_ttl=False)} == {"usual", "kept"}
    assert store.get(("m",), "short") is None
    times.minutes = 9
    seq = store.ctx.seq
    assert store.get(("m",), "usual", refresh_ttl=False) is not None
    assert store.ctx.seq == seq
    assert store.get(("m",), "usual") is not None  # the item lives for ten minutes more
    times.minutes = 18
    assert store.search(("m",), limit=5)[0].key == "usual"
    times.minutes = 28
    assert store.get(("m",), "usual") is None
    assert [item.key for item in store.search(("m",))] == ["kept"]
    assert store.get(("m",), "kept") is not None


def test_expired_items_are_removed() -> None:
    store = QuireStore(quire.MemoryStorage())
    times = Times(store)
    for n in range(3):
        store.put(("old",), f"k{n}", {"n": n}, ttl=1)
    store.put(("new",), "k", {}, ttl=60)
    times.minutes = 2
    assert store.list_namespaces() == [("new",)]
    assert store.sweep_ttl() == 3
    assert store.sweep_ttl() == 0
    assert [page.name for page in store.ctx.pages.list_pages("store") if "key" in page.meta] == ["k"]
    times.minutes = 100
    store.put(("old",), "k0", {"again": True})  # a put removes what has expired, and brings back a key
    assert store.list_namespaces() == [("old",)]
    assert store.get(("old",), "k0") is not None
    assert asyncio.run(store.aget(("new",), "k")) is None


def test_a_put_over_a_key_has_its_own_time_to_live() -> None:
    store = QuireStore(quire.MemoryStorage())
    times = Times(store)
    store.put(("m",), "k", {"n": 1}, ttl=1)
    store.put(("m",), "k", {"n": 1})
    times.minutes = 5
    assert store.get(("m",), "k") is not None


# Fields, scores, embeddings


def test_the_fields_of_the_index_are_the_default() -> None:
    store = QuireStore(quire.MemoryStorage(), index={"fields": ["title", "tags[*]"]})
    store.put(("m",), "a", {"title": "kestrel", "text": "osprey", "tags": ["heron"]})
    store.put(("m",), "b", {"title": "none", "text": "kestrel heron"}, index=["text"])
    store.put(("m",), "c", {"title": "kestrel"}, index=False)

    def found(query: str) -> set[str]:
        return {item.key for item in store.search(("m",), query=query) if item.score is not None}

    assert (found("kestrel"), found("heron"), found("osprey")) == ({"a", "b"}, {"a", "b"}, set())


def test_scores_are_between_0_and_1_and_fall() -> None:
    store = QuireStore(quire.MemoryStorage())
    for n in range(30):
        store.put(("m",), f"k{n}", {"text": "kestrel " * (n % 5) + "and others " * n})
    scores = [item.score for item in store.search(("m",), query="kestrel", limit=30) if item.score is not None]
    assert len(scores) == 24
    assert all(0 < score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


def test_embeddings_of_the_index_are_used_and_shown() -> None:
    pytest.importorskip("numpy")

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[float("bird" in text or "kestrel" in text), float("car" in text), 0.1] for text in texts]

    store = QuireStore(quire.MemoryStorage(), index={"dims": 3, "embed": embed})
    assert store.embeddings is not None
    assert store.embeddings.embed_query("a bird") == [1.0, 0.0, 0.1]
    store.put(("m",), "a", {"text": "a fast car"})
    store.put(("m",), "b", {"text": "a kestrel"})
    best = store.search(("m",), query="bird")[0]
    assert best.key == "b"
    assert best.score is not None
    assert 0 < best.score <= 1
    assert QuireStore(quire.MemoryStorage()).embeddings is None
    assert QuireStore(quire.open(quire.MemoryStorage(), embedder=embed)).embeddings is not None


def test_a_store_in_an_open_asynchronous_context_can_have_embeddings() -> None:
    async def run() -> None:
        async with await quire.aio.open(quire.MemoryStorage()) as ctx:
            store = QuireStore(ctx, index={"dims": 1, "embed": lambda texts: [[1.0] for _ in texts]})
            assert store.embeddings is not None
            await store.aput(("m",), "a", {"text": "a fast car"})
            assert await store.aget(("m",), "a") is not None

    asyncio.run(run())
