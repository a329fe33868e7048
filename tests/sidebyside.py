"""Three backends and the model in parallel: run one operation everywhere, and compare everything after it."""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from hypothesis import note
from hypothesis.stateful import RuleBasedStateMachine

from quire import (
    ContentsPage,
    ContextSystem,
    FileStorage,
    MemoryStorage,
    NoSuchPage,
    PostgresStorage,
    QuireError,
    Segment,
    SQLiteStorage,
    Storage,
)
from tests.books import WordCounter
from tests.clocks import SteppingClock
from tests.model_state import Orders, Refused, Saved
from tests.model_values import Lifecycle, Visibility
from tests.oracle import Model
from tests.servers.postgres import postgres_url
from tests.servers.s3 import fresh_prefix, open_s3

FAST = Path("/dev/shm")
"""A folder in memory if there is one: other tests prove durability."""

NEVER = ("usr-999", "nope-1", "USR-1", "usr-01", "../../x", "usr-１", "usr-²", "usr-1\0", "", "usr", "-1")
"""Texts that are never the index of a page."""


Pages = dict[str, dict[str, object]]
"""A tree as plain values: the compared data of each page."""


def store_opener(kind: str, path: Path) -> Callable[[], Storage]:
    """Return a function that opens a new store of a kind; for memory it is one object."""
    match kind:
        case "memory":
            memory = MemoryStorage()
            return lambda: memory
        case "postgres":
            url = postgres_url()
            return lambda: PostgresStorage(url)
        case "s3":
            prefix = fresh_prefix()
            return lambda: open_s3(prefix, upkeep="inline", cache_bytes=20_000)
        case "file":
            return lambda: FileStorage(path)
        case _:
            return lambda: SQLiteStorage(path)


def all_alike(values: Sequence[object]) -> bool:
    """Return whether all are equal; they are compared with the first."""
    return all(value == values[0] for value in values)


class Backend:
    """One system under test, with a function that opens its storage again."""

    def __init__(self, name: str, opener: Callable[[], Storage]) -> None:
        self.name = name
        self.opener = opener
        self.clock = SteppingClock()
        self.system = self._open(opener())

    def _open(self, storage: Storage) -> ContextSystem:
        return ContextSystem(storage, "book", clock=self.clock, counter=WordCounter(), max_pages=12)

    def reopen(self) -> None:
        """Close the storage and open it again."""
        self.system.storage.close()
        self.system = self._open(self.opener())

    def move_to(self, opener: Callable[[], Storage]) -> None:
        """Continue in another storage; the old one is closed."""
        old = self.system.storage
        self.system.set_storage(opener(), migrate=True)
        self.opener = opener
        old.close()


class Pick(NamedTuple):
    """A choice of a page: its kind, and its number among the pages of this kind."""

    kind: str
    number: int


class Outcome(NamedTuple):
    """The outcome of an operation: a value, or an error's code and text."""

    value: object
    code: str = ""
    text: str = ""


class SideBySide(RuleBasedStateMachine):
    """The model, memory, file and SQLite; or memory and the backends of `kinds`."""

    kinds: ClassVar[tuple[str, ...]] = ("memory", "file", "sqlite")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="quire-machine-", dir=FAST if FAST.exists() else None))
        self.model = Model()
        self.saved: list[tuple[bytes, Saved]] = []
        self._stores = 0
        self.compared = 0
        self.backends = [Backend(kind, self.opener(kind)) for kind in self.kinds]

    def opener(self, kind: str) -> Callable[[], Storage]:
        """Return a function that opens a separate store."""
        self._stores += 1
        return store_opener(kind, self.folder / f"{self._stores}-{kind}")

    def teardown(self) -> None:
        """At the end of a trace, check that documents, histories and search results are the same everywhere."""
        try:
            documents = [backend.system.marshal() for backend in self.backends]
            assert all_alike(documents)
            assert [problem for backend in self.backends for problem in backend.system.check()] == []
            self._compare_histories()
            for query in ("plan", "语言", "hello there", "line"):
                hits = [backend.system.find(query) for backend in self.backends]
                assert all_alike(hits)
        finally:
            for backend in self.backends:
                backend.system.storage.close()
            shutil.rmtree(self.folder)

    def step(
        self,
        operation: str,
        wanted: Callable[[], object],
        call: Callable[[ContextSystem], object],
        *what: object,
        compare: bool = True,
    ) -> None:
        """Run one operation on the model and on every backend: all refuse it or none, with the same result."""
        note(f"{operation}{what!r}")
        names: tuple[str, ...] = ()
        undoes = what[0] if operation == "undo" and isinstance(what[0], int) else None
        try:
            expected = Outcome(self.model.do(operation, wanted, undoes))
        except Refused as refusal:
            expected, names = Outcome(None, "refused", str(refusal)), refusal.names
        outcomes = [_outcome(backend.system, call) for backend in self.backends]
        assert all_alike(outcomes)
        found = outcomes[0]
        if expected.code:
            assert found.code, f"{operation}{what!r} was accepted; the model refuses it: {expected.text}"
            assert not names or any(name in found.text for name in names), f"{found.text!r} names none of {names!r}"
        else:
            assert not found.code, f"{operation}{what!r} was refused: {found.text}"
            assert found.value == (self.model.seq if operation == "undo" else expected.value)
        if compare:
            self.compare()

    def compare(self) -> None:
        """Check that every backend equals the model in everything, and that its own check finds nothing.

        The check of a store takes the most time: one store checks itself in each step.
        """
        self.compared += 1
        orders = self._orders(json.loads(self.backends[0].system.marshal()))
        self.model.settle(orders)
        assert orders == {i: self.model.state.orders[i] for i, page in self.model.state.pages.items() if page.folder}
        expected_pages, expected_segments = self._expected_pages(), self._expected_segments()
        for number, backend in enumerate(self.backends):
            system = backend.system
            if self.compared % len(self.backends) == number:
                assert system.check() == [], backend.name
            assert system.seq == self.model.seq
            differences = _differences(_observed(system), expected_pages)
            assert not differences, f"{backend.name}: {differences}"
            assert [_segment(segment) for segment in system.list_segments()] == expected_segments

    def pick(self, pick: Pick) -> str:
        """Return the index of a choice in this state."""
        model = self.model
        pages = list(model.state.pages.values())
        candidates = {
            "live": lambda: [page.index for page in pages],
            "leaf": lambda: [page.index for page in pages if not page.folder],
            "folder": lambda: [page.index for page in pages if page.folder],
            "inner": lambda: [page.index for page in pages if page.folder and not model.is_root(page)],
            "cold": lambda: [page.index for page in pages if model.effective(page) == Lifecycle.COLD_ARCHIVED],
            "hot": lambda: [page.index for page in pages if model.effective(page) == Lifecycle.HOT_ARCHIVED],
            "hidden": lambda: [page.index for page in pages if page.visibility == Visibility.HIDDEN],
            "pinned": lambda: [page.index for page in pages if page.pinned],
            "root": lambda: [page.index for page in pages if model.is_root(page)],
            "gone": lambda: list(model.state.gone),
            "never": lambda: list(NEVER),
        }[pick.kind]() or [page.index for page in pages]
        return candidates[pick.number % len(candidates)]

    def _orders(self, document: dict[str, Any]) -> Orders:
        """Return the order in every folder, without the cold pages that would return to the end of a root."""
        orders = _orders(document)
        for segment in self.model.live_segments():
            for index in reversed(self.model.lost(segment.id)):
                assert orders[self.model.root(segment.id)].pop() == index
        return orders

    def _compare_histories(self) -> None:
        histories = [list(backend.system.history()) for backend in self.backends]
        assert all_alike(histories)
        assert [entry.seq for entry in histories[0]] == list(range(1, self.model.seq + 1))
        for entry, expected in zip(histories[0], self.model.entries, strict=True):
            assert (entry.operation, entry.undoes) == (expected.operation, expected.undoes)
            assert set(entry.pages) == set(expected.pages)
            assert set(entry.segments) <= set(
                expected.segments
            )  # the model gives a new place to a segment that is read again

    def _expected_pages(self) -> Pages:
        model = self.model
        return {
            index: {
                "name": page.name,
                "description": page.description,
                "parent": None if page.lifecycle == Lifecycle.COLD_ARCHIVED else page.parent,
                "home": model.home(page),
                "lifecycle": page.lifecycle,
                "effective": model.effective(page),
                "visibility": page.visibility,
                "pinned": page.pinned,
                "seq": model.changed["page", index],
                "summary tokens": len(page.description.split()),
                "tokens": len(page.detail.split()),
                "body": model.children(index) if page.folder else page.detail,
                "count": len(model.children(index)) if page.folder else None,
            }
            for index, page in model.state.pages.items()
        }

    def _expected_segments(self) -> list[dict[str, object]]:
        return [
            {
                "id": segment.id,
                "name": segment.name,
                "description": segment.description,
                "type": segment.type,
                "permission": segment.permission,
                "capacity": segment.capacity,
                "root": self.model.root(segment.id),
            }
            for segment in self.model.live_segments()
        ]


def _outcome(system: ContextSystem, call: Callable[[ContextSystem], object]) -> Outcome:
    try:
        return Outcome(call(system))
    except NoSuchPage as error:
        return Outcome(error.moved_to, error.code, str(error))
    except QuireError as error:
        return Outcome(None, error.code, str(error))


def _observed(system: ContextSystem) -> Pages:
    found: Pages = {}
    for page in system.list_pages():
        folder = isinstance(page, ContentsPage)
        found[page.index] = {
            "name": page.name,
            "description": page.description,
            "parent": page.parent,
            "home": page.home,
            "lifecycle": page.lifecycle,
            "effective": page.effective,
            "visibility": page.visibility,
            "pinned": page.pinned,
            "seq": page.changed_seq,
            "summary tokens": page.summary_tokens,
            "tokens": page.tokens,
            "body": [child.index for child in system.children(page.index)] if folder else system.detail(page.index),
            "count": page.child_count if isinstance(page, ContentsPage) else None,
        }
    return found


def _differences(found: Pages, expected: Pages) -> list[tuple[str, str, object, object]]:
    """Yield the differences of two trees: page, field, actual and expected value."""
    return [
        (index, field, found.get(index, {}).get(field), expected.get(index, {}).get(field))
        for index in sorted(found.keys() | expected.keys())
        for field in (found.get(index) or expected[index])
        if found.get(index, {}).get(field, ...) != expected.get(index, {}).get(field, ...)
    ]


def _segment(segment: Segment) -> dict[str, object]:
    return {
        "id": segment.id,
        "name": segment.name,
        "description": segment.description,
        "type": segment.type,
        "permission": segment.permission,
        "capacity": segment.max_capacity,
        "root": segment.root_index,
    }


def _orders(document: dict[str, Any]) -> Orders:
    """Return the order in every folder of a document, with cold pages at the places to which they would return."""
    pages: dict[str, dict[str, Any]] = document["pages"]
    returning: dict[tuple[str, str], list[str]] = {}
    for index, page in pages.items():
        if "home" in page:
            returning.setdefault((page["home"]["parent"], page["home"]["after"]), []).append(index)
    orders: Orders = {}
    for folder, page in pages.items():
        if page["type"] == "ContentsPage":
            waiting = ["", *page["children"]][::-1]
            orders[folder] = []
            while waiting:
                index = waiting.pop()
                orders[folder].append(index)
                waiting += reversed(returning.get((folder, index), []))
            orders[folder].remove("")
    return orders
