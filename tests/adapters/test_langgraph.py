"""LangGraph's store: the same operations give the same results as LangGraph's own store in memory."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain")
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
    Op,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

import quire
from quire.adapters.langgraph import QuireStore
from tests.adapters.langchain_models import Scripted

pytestmark = pytest.mark.clients


@pytest.fixture
def store() -> QuireStore:
    return QuireStore(quire.MemoryStorage())


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
)


def plainly(result: Any) -> Any:
    """Return a result without times and scores, and without the order of a search."""
    if isinstance(result, Item):
        return result.namespace, result.key, repr(result.value)
    if isinstance(result, list) and result and isinstance(result[0], SearchItem):
        return Counter(map(plainly, result))
    return Counter() if result == [] else result


@settings(max_examples=25)
@given(st.lists(st.lists(OPS, max_size=4), max_size=6))
def test_the_same_operations_give_the_same_answers(batches: list[list[Op]]) -> None:
    backend = quire.MemoryStorage()
    oracle, store = InMemoryStore(), QuireStore(backend)
    for ops in batches:
        for part in ([op for op in ops if isinstance(op, kind)] for kind in (GetOp, SearchOp | PutOp)):
            assert list(map(plainly, store.batch(part))) == list(map(plainly, oracle.batch(part)))
    everything = oracle.search((), limit=1_000)
    assert plainly(store.search((), limit=1_000)) == plainly(everything)
    assert plainly(QuireStore(backend).search((), limit=1_000)) == plainly(everything)
    assert sorted(store.list_namespaces(limit=1_000)) == sorted({item.namespace for item in everything})
    assert store.ctx.check() == []


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


def test_bad_input_is_told_and_changes_nothing(store: QuireStore) -> None:
    seq = store.ctx.seq
    for value in ({"it": object()}, "text"):
        with pytest.raises(quire.InvalidValue):
            store.batch([PutOp(("a",), "ok", {}), PutOp(("a",), "k", value)])  # type: ignore[arg-type]
    store.put(("a",), "k", {})
    with pytest.raises(quire.InvalidValue):
        store.search(("a",), filter={"n": {"$like": 1}})
    with pytest.raises(quire.InvalidValue):
        store.search((), offset=-1)
    for ttl in (0, -1, True, "5", float("nan"), float("inf")):
        with pytest.raises(quire.InvalidValue):
            store.batch([PutOp(("a",), "k", {}, ttl=ttl)])  # type: ignore[arg-type]
    for namespace in (("foo", 1), "foo", ("a", None), 5):
        for op in (PutOp(namespace, "k", {}), GetOp(namespace, "k"), SearchOp(namespace)):  # type: ignore[arg-type]
            with pytest.raises(InvalidNamespaceError) as raised:
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


def test_items_expire() -> None:
    store = QuireStore(quire.MemoryStorage(), ttl={"default_ttl": 60})
    store.put(("m",), "short", {"text": "kestrel"}, ttl=0.001)
    store.put(("m",), "usual", {"text": "kestrel"})
    time.sleep(0.1)
    assert store.get(("m",), "short") is None
    assert [item.key for item in store.search(("m",), query="kestrel")] == ["usual"]
    assert store.sweep_ttl() == 1
    assert store.sweep_ttl() == 0


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
