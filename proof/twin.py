"""A world in memory that runs the same operations as a world on disk, and keeps its state after each write."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from proof.plain_model import Event, PlainModel
from proof.world import EDITED, Found, World, look, versions
from quire import MemoryStorage
from quire.core import lease
from quire.storage.contract import Commit, Fork, Id

Stores = tuple[MemoryStorage, MemoryStorage]


class RecordedStorage(MemoryStorage):
    """A memory storage that calls `after_write` when a write is done."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def after_write(self) -> None:
        """Do nothing; a recording replaces this method."""

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        with self._writing():
            return super().create(name, commit, copy_of)

    def name(self, context: Id, name: str) -> None:
        with self._writing():
            super().name(context, name)

    def commit(self, context: Id, commit: Commit) -> None:
        with self._writing():
            super().commit(context, commit)

    def drop(self, name: str, seen: tuple[Id, int] | None = None) -> None:
        with self._writing():
            super().drop(name, seen)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if not self._depth:
            self.after_write()

    def copy(self) -> "RecordedStorage":
        """Return an equal storage that shares nothing that changes."""
        other = RecordedStorage()
        other._names = dict(self._names)
        other._tables = {context: table.copy() for context, table in self._tables.items()}
        other._ids = count(max(self._tables, default=0) + 1)
        return other


class Twin:
    """A world in memory and its plain model. Each life of the writer on disk is a life of the twin."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.model = PlainModel()
        self._main, self._second = RecordedStorage(), RecordedStorage()
        self._world = World(self._main, self._second)
        self._life = 0

    @property
    def main(self) -> RecordedStorage:
        """The main store."""
        return self._main

    def after_write(self, call: Callable[[], None]) -> None:
        """Call a function after each write to the main store."""
        self._main.after_write = call  # type: ignore[method-assign]

    def run(self, number: int) -> str:
        """Run an operation that the writer finished. Return its name."""
        events: list[Event] = []
        with self._own_process():
            name = self._world.run(number, self.seed, events.append)
        for event in events:
            self.model.apply(event)
        return name

    def run_unfinished(self, number: int) -> tuple[str, list["Candidate"]]:
        """Run the operation in which the writer was killed. Return its name, and the states that it can leave."""
        candidates = [self._candidate([])]
        events: list[Event] = []
        for storage in (self._main, self._second):
            storage.after_write = lambda: candidates.append(self._candidate(events))  # type: ignore[method-assign]
        with self._own_process():
            name = self._world.run(number, self.seed, events.append)
        for candidate in candidates:
            candidate.events = events
        return name, candidates

    def adopt(self, candidate: "Candidate", models: PlainModel) -> None:
        """Continue from a state that the writer left. The next operation is in another process."""
        self._main, self._second = candidate.main, candidate.second
        self._world = World(self._main, self._second)
        self.model = models
        self._life += 1

    def look(self, candidate: "Candidate") -> Found:
        """Return all that a user sees in a state. The view can fold: the state then changes as on disk."""
        with self._own_process():
            return look(World(candidate.main, candidate.second), check=False)

    def versions(self, candidate: "Candidate") -> dict[str, dict[str, int]]:
        """Return the versions of all contexts in a state."""
        return versions(World(candidate.main, candidate.second))

    def _candidate(self, events: list[Event]) -> "Candidate":
        return Candidate(self._main.copy(), self._second.copy(), len(events))

    @contextmanager
    def _own_process(self) -> Iterator[None]:
        """Make the leases of this block those of a process that ends with this life."""
        kept = lease.identify_process, lease.is_dead, lease.renewer.add
        lease.identify_process = lambda: f"life {self._life}"
        lease.is_dead = lambda process: process != f"life {self._life}"
        lease.renewer.add = lambda lease: None  # type: ignore[method-assign]
        try:
            yield
        finally:
            lease.identify_process, lease.is_dead = kept[:2]
            lease.renewer.add = kept[2]  # type: ignore[method-assign]


class Candidate:
    """A state that an interrupted operation can leave: both stores, and how many steps were noted before it."""

    def __init__(self, main: RecordedStorage, second: RecordedStorage, steps: int) -> None:
        self.main = main
        self.second = second
        self.steps = steps
        self.events: list[Event] = []

    def models(self, model: PlainModel) -> Iterator[PlainModel]:
        """Yield the plain model after each number of steps, the noted one first, and then after parts of one."""
        order = sorted(range(len(self.events) + 1), key=lambda number: abs(number - self.steps))
        for number in order:
            result = model.copy()
            for event in self.events[:number]:
                result.apply(event)
            yield result
        for event in self.events[:1]:
            for part in model.parts(event):
                result = model.copy()
                result.apply(part)
                yield result


def differences(found: Found, expected: Found) -> list[str]:
    """Return the places where two looks differ."""
    places = []
    for side in ("main", "second"):
        for name in sorted(found[side].keys() | expected[side].keys()):
            here, there = found[side].get(name), expected[side].get(name)
            if here is None or there is None:
                places.append(f"{side} {name!r}: {'missing' if here is None else 'not expected'}")
                continue
            places += [f"{side} {name!r}: {key}" for key in here if here[key] != there[key]]
    places += [f"view of {name!r}" for name, view in found["views"].items() if expected["views"].get(name) != view]
    return places


def model_differences(found: Found, model: PlainModel) -> list[str]:
    """Return the places where a look differs from the plain model, and which texts are there and which are missing."""
    places = []
    for side, expected in model.shown().items():
        shown = {name: (one["messages"], one["pages"]) for name, one in found[side].items() if name != EDITED}
        for name in sorted(shown.keys() | expected.keys()):
            here, there = shown.get(name), expected.get(name)
            if here != there:
                places.append(f"{side} {name!r}: {_compare_texts(here, there)}")
    return places


Texts = tuple[list[str], dict[str, str]]


def _compare_texts(here: Texts | None, there: Texts | None) -> str:
    if here is None or there is None:
        return "missing" if here is None else "not expected"
    found = {**dict.fromkeys(here[0], ""), **{f"{index} {text}": "" for index, text in here[1].items()}}
    expected = {**dict.fromkeys(there[0], ""), **{f"{index} {text}": "" for index, text in there[1].items()}}
    extra = [text[:30] for text in found if text not in expected]
    lost = [text[:30] for text in expected if text not in found]
    if extra or lost:
        return f"not expected {extra[:5]}, lost {lost[:5]}"
    at = next((place for place, pair in enumerate(zip(here[0], there[0], strict=False)) if pair[0] != pair[1]), -1)
    first, second = ([text[:20] for text in one[0][max(0, at - 1) : at + 4]] for one in (here, there))
    return f"another order: {first}, expected {second}, of {len(here[0])} and {len(there[0])}"
