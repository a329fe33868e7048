"""Paged lists: the parts make up the list, and the cost of a part does not depend on the length of the list."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.core.plan import Plan
from quire.server.context_pool import ContextPool
from quire.server.handlers import history
from quire.server.handlers.contexts import list_contexts
from quire.server.routes import ROUTES
from quire.storage.base import Family, Head, Record
from quire.system.tree import create_detail_page
from tests.books import WordCounter
from tests.server.conftest import Api, Talk


class Counting(quire.MemoryStorage):
    """Counts the records that are read."""

    reads = 0

    def head(self, context: str) -> Head | None:
        self.reads += 1
        return super().head(context)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        self.reads += 1
        return super().get(context, family, key)

    def scan(self, *arguments: Any, **options: Any) -> Iterator[Record]:
        return self._counted(super().scan(*arguments, **options))

    def members(self, *arguments: Any, **options: Any) -> Iterator[Record]:
        return self._counted(super().members(*arguments, **options))

    def _counted(self, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            self.reads += 1
            yield record


def pool_of(size: int) -> tuple[Counting, ContextPool]:
    """Return a pool with a context of `size` notes and messages, and the storage below it."""
    storage = Counting()
    library = quire.Library(storage)
    context = library.open("book", counter=WordCounter())

    def fill(plan: Plan) -> None:
        for n in range(size):
            create_detail_page(plan, f"note {n}", "", f"text {n}", "mem-0")

    context.pages._engine.run("developer", "fill", fill)
    context.import_messages({"role": ("user", "assistant")[n % 2], "content": f"said {n}"} for n in range(size))
    for n in range(size // 10):
        context.pages.pin("mem-1") if n % 2 else context.pages.unpin("mem-1")
    return storage, ContextPool(library, budget=4_000, apps=())


def call(pool: ContextPool, path: str, **query: Any) -> Any:
    """Return the answer of a GET route."""
    route = next(route for route in ROUTES if (route.method, route.path) == ("GET", path))
    names = {"c": "book", "p": "mem-7"}
    return route.call(pool, {name: names[name] for name in names if f"{{{name}}}" in path}, route.query(**query))


C = "/api/contexts/{c}"
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "contexts": ("/api/contexts", {}),
    "context": (C, {}),
    "roots": (f"{C}/pages", {}),
    "children": (f"{C}/pages", {"parent": "mem-0", "limit": 20}),
    "children further on": (f"{C}/pages", {"parent": "mem-0", "limit": 20, "after": "mem-600"}),
    "children that pass": (f"{C}/pages", {"parent": "mem-0", "limit": 20, "lifecycle": "hot"}),
    "cold children": (f"{C}/pages", {"parent": "mem-0", "lifecycle": "cold"}),
    "a page": (f"{C}/pages/{{p}}", {}),
    "messages": (f"{C}/messages", {"limit": 20}),
    "messages further on": (f"{C}/messages", {"limit": 20, "after": 600}),
    "all messages": (f"{C}/messages", {"limit": 20, "all": True, "after": 600}),
    "entries": (f"{C}/history", {"limit": 20, "order": "desc"}),
}


def test_the_cost_of_a_part_does_not_depend_on_the_length_of_the_list() -> None:
    figures: dict[str, list[int]] = {name: [] for name in PARTS}
    for size in (700, 2_100):
        storage, pool = pool_of(size)
        for name, (path, query) in PARTS.items():
            call(pool, path, **query)  # fills the caches
            pool.close()
            storage.reads = 0
            call(pool, path, **query)
            figures[name].append(storage.reads)
    for name, (short, long) in figures.items():
        assert long <= short + 5, name
        assert long <= 320, (name, long)


def test_the_parts_of_a_folder_are_the_folder(api: Api, talk: Talk) -> None:
    whole = [page.index for page in talk.context.pages.children("mem-1")]
    for limit in (1, 2, 5, 100):
        found: list[str] = []
        query: dict[str, Any] = {"parent": "mem-1", "limit": limit}
        while True:
            part = api.get(f"{talk.path}/pages", **query)
            assert len(part["pages"]) <= limit
            found += [page["index"] for page in part["pages"]]
            if part["next"] is None:
                break
            query["after"] = part["next"]
        assert found == whole


def test_the_roots_are_given_in_parts_too(api: Api, talk: Talk) -> None:
    assert [page["index"] for page in api.get(f"{talk.path}/pages")["pages"]] == ["sys-0", "mem-0", "usr-0", "win-0"]
    part = api.get(f"{talk.path}/pages", limit=3)
    assert part["next"] == "usr-0"
    assert [page["index"] for page in api.get(f"{talk.path}/pages", after="usr-0")["pages"]] == ["win-0"]


def test_pages_are_filtered_by_lifecycle(api: Api, talk: Talk) -> None:
    pages = talk.context.pages
    pages.archive("mem-3")
    pages.archive("mem-4", cold=True)

    def listed(lifecycle: str) -> list[str]:
        return [page["index"] for page in api.get(f"{talk.path}/pages", parent="mem-1", lifecycle=lifecycle)["pages"]]

    assert listed("active") == ["mem-2", "mem-5", "mem-6"]
    assert listed("hot") == ["mem-3"]
    assert listed("cold") == ["mem-4"]
    cold = api.get(f"{talk.path}/pages/mem-4")
    assert (cold["lifecycle"], cold["parent"], cold["home"], cold["path"]) == ("cold", None, "mem-1", [])


def test_a_filtered_list_continues_after_an_empty_part() -> None:
    _, pool = pool_of(300)
    with pool.use("book") as opened:
        opened.context.pages.archive("mem-290")
    query: dict[str, Any] = {"parent": "mem-0", "limit": 5, "lifecycle": "hot"}
    parts, found = 0, list[Any]()
    while True:
        part = call(pool, f"{C}/pages", **query)
        parts, found = parts + 1, found + [page.index for page in part.pages]
        if part.next is None:
            break
        query["after"] = part.next
    assert found == ["mem-290"]
    assert parts > 3


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_the_parts_of_the_journal_are_the_journal(order: str, api: Api, talk: Talk) -> None:
    seqs = [entry.seq for entry in talk.context.history(reverse=order == "desc")]
    found: list[int] = []
    query: dict[str, Any] = {"order": order, "limit": 7}
    while True:
        part = api.get(f"{talk.path}/history", **query)
        found += [entry["seq"] for entry in part["entries"]]
        if part["next"] is None:
            break
        query["before" if order == "desc" else "after"] = part["next"]
    assert found == seqs
    chosen = api.get(f"{talk.path}/history", order=order, page="mem-2", operation="create_detail_page")["entries"]
    assert [entry["pages"] for entry in chosen] == [["mem-2"]]
    assert api.get(f"{talk.path}/history", order=order, actor="nobody") == {
        "entries": [],
        "next": None,
        "seq": talk.context.seq,
    }


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_a_journal_in_which_little_is_looked_for_is_given_in_parts(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_SEARCHED_ENTRIES", 10)
    _, pool = pool_of(300)
    query: dict[str, Any] = {"order": order, "operation": "fill"}
    parts, found = 0, list[Any]()
    while True:
        part = call(pool, f"{C}/history", **query)
        parts, found = parts + 1, found + [entry.seq for entry in part.entries]
        if part.next is None:
            break
        query["before" if order == "desc" else "after"] = part.next
    assert found == [2]
    assert parts >= 3


@pytest.mark.parametrize("everything", [True, False])
def test_the_parts_of_a_conversation_are_the_conversation(everything: bool, api: Api, talk: Talk) -> None:
    talk.context.conversation.delete([4])
    whole = [message.index for message in talk.context.messages(all=everything)]
    found: list[int] = []
    query: dict[str, Any] = {"limit": 4, "all": str(everything).lower()}
    while True:
        part = api.get(f"{talk.path}/messages", **query)
        found += [message["index"] for message in part["messages"]]
        if part["next"] is None:
            break
        query["after"] = part["next"]
    assert found == whole


def test_contexts_are_listed_by_prefix_and_in_parts(api: Api, library: quire.Library, talk: Talk) -> None:
    mine = f"列表 {talk.context.name}"
    names = [f"{mine} {n}" for n in range(5)]
    for name in names:
        library.open(name)
    first = api.get("/api/contexts", prefix=mine, limit=2)
    assert [line["name"] for line in first["contexts"]] == names[:2]
    assert first["next"] == names[1]
    rest = api.get("/api/contexts", prefix=mine, after=first["next"])
    assert [line["name"] for line in rest["contexts"]] == names[2:]
    assert rest["next"] is None
    line = rest["contexts"][0]
    assert (line["seq"], line["pages"], line["messages"], line["tokens"]) == (1, 4, 0, 0)


def test_a_large_context_is_counted_only_on_request() -> None:
    _, pool = pool_of(2_010)
    assert call(pool, C).stats is None
    counted = call(pool, f"{C}/stats")
    assert counted.total_items == 2_010
    shown = call(pool, C)
    assert shown.stats == counted
    assert shown.segments[2].tokens == counted.segments["usr"]
    assert call(pool, "/api/contexts").contexts[0].tokens == counted.estimated_tokens


@pytest.mark.parametrize(
    "damage", ["UPDATE context SET head = x'00' WHERE name = 'a'", "UPDATE page SET value = x'00'"]
)
def test_a_damaged_context_does_not_hide_the_others(damage: str, tmp_path: Path) -> None:
    with quire.Library(tmp_path / "agents.db") as library:
        library.create("a")
        with sqlite3.connect(tmp_path / "agents.db") as connection:
            connection.execute(damage)
        library.create("b").user("hello")
        pool = ContextPool(library, budget=None, apps=())
        listed = list_contexts(pool).contexts
        pool.close()
    assert [(line.name, line.messages) for line in listed] == [("a", 0), ("b", 1)]
    assert listed[0].tokens is None
