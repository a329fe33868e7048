"""What every face on a context shares: the engine, an actor's name, and the way to plan and to read."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from quire.engine import Engine
from quire.plan import Plan
from quire.state import State
from quire.text import one_line

P = ParamSpec("P")
T = TypeVar("T")
_CHUNK = 256


class Face:
    """One engine under one actor's name. Several faces can share an engine, and so its lock and its cache."""

    def __init__(self, engine: Engine, actor: str) -> None:
        self.actor = one_line(actor, "actor", 100, empty=False)
        self._engine = engine

    @classmethod
    def beside(cls, other: "Face") -> Self:
        """This kind of face on the engine of another, under the same name."""
        face = object.__new__(cls)
        Face.__init__(face, other._engine, other.actor)
        return face

    def acting_as(self, actor: str) -> Self:
        """The same context, cache and lock under another actor's name in the journal. Nothing else changes: this face
        checks no permissions, whoever the actor is."""
        face = object.__new__(type(self))
        Face.__init__(face, self._engine, actor)
        return face

    @property
    def context(self) -> str:
        """The name of this context in its storage."""
        return self._engine.state.context

    def run(self, operation: str, planner: Callable[Concatenate[Plan, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Plan something with the planning functions, commit it as one journal entry, and return the plan's result.

        All operations below are made of it; several planned steps in one planner are one all-or-nothing commit.
        """
        engine = self._engine
        with engine.lock:
            plan = engine.begin(self.actor)
            result = planner(plan, *args, **kwargs)
            engine.commit(plan, operation)
            return result

    def _read(self, look: Callable[[State], T]) -> T:
        with self._engine.lock:
            return look(self._engine.current())

    def _stream(self, items: Iterator[Any], hand_out: Callable[[State, Any], T]) -> Iterator[T]:
        """The items, a chunk at a time under the lock, so that a long walk never keeps writers waiting."""
        while True:
            with self._engine.lock:
                state = self._engine.current()
                chunk = [hand_out(state, item) for item in islice(items, _CHUNK)]
            yield from chunk
            if len(chunk) < _CHUNK:
                return
