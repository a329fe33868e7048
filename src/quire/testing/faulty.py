"""A storage that fails on demand."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Literal, TypeVar

from quire.errors import StorageFailure
from quire.storage.contract import (
    MAX_KEY,
    Commit,
    Family,
    Flaw,
    Fork,
    Id,
    Loaded,
    Record,
    Storage,
    StoredEntry,
)

When = Literal["before", "after"]
T = TypeVar("T")


class InjectedFault(StorageFailure):
    """The failure that a `FaultyStorage` raises on demand."""

    code = "injected_fault"


class FaultyStorage:
    """Wraps a storage and fails at its k-th call, `before` or `after` the call is done.

    `after` simulates a lost acknowledgement: the commit is made, but the caller gets an error. A stream that fails
    `after` ends after its first record. With `lasting`, every later call fails too until `heal()`. `fail_at=0` never
    fails and only counts. `error` is raised instead of `InjectedFault`. The calls of a snapshot count too.
    """

    def __init__(
        self,
        inner: Storage,
        fail_at: int = 0,
        when: When = "before",
        *,
        lasting: bool = False,
        error: BaseException | None = None,
    ) -> None:
        self.inner = inner
        self.calls: list[str] = []
        """The names of the calls since the last `arm()`."""
        self._error = error
        self.arm(fail_at, when, lasting=lasting)

    def arm(self, fail_at: int, when: When = "before", *, lasting: bool = False) -> None:
        """Reset the count, and fail at the call with that number."""
        self.calls.clear()
        self._fail_at = fail_at
        self._when = when
        self._lasting = lasting

    def heal(self) -> None:
        """Stop failing; calls are still counted."""
        self._fail_at = 0

    @property
    def failed(self) -> bool:
        """True if the call that fails has been made."""
        return 0 < self._fail_at <= len(self.calls)

    def load(self, name: str, seen: tuple[Id, int] | None = None) -> Loaded | None:
        return self._call("load", self.inner.load, name, seen)

    def entries(
        self, context: Id, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[StoredEntry]:
        return self._stream("entries", self.inner.entries(context, start, stop, reverse=reverse))

    def get(self, context: Id, family: Family, keys: Sequence[int]) -> list[Record | None]:
        return self._call("get", self.inner.get, context, family, keys)

    def scan(
        self, context: Id, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        return self._stream("scan", self.inner.scan(context, family, start, stop, reverse=reverse))

    def children(
        self, context: Id, parent: int, *, after: tuple[int, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        return self._stream("children", self.inner.children(context, parent, after=after, reverse=reverse))

    def create(self, name: str | None, commit: Commit, copy_of: Fork | None = None) -> Id:
        return self._call("create", self.inner.create, name, commit, copy_of)

    def name(self, context: Id, name: str) -> None:
        self._call("name", self.inner.name, context, name)

    def commit(self, context: Id, commit: Commit) -> None:
        self._call("commit", self.inner.commit, context, commit)

    @contextmanager
    def snapshot(self, context: Id) -> Iterator[Storage]:
        fault = self._enter("snapshot")
        with self.inner.snapshot(context) as inner:
            frozen = copy(self)
            frozen.inner = inner
            yield frozen
        if fault:
            raise self._fault()

    def contexts(self, after: str = "") -> Iterator[str]:
        return self._stream("contexts", self.inner.contexts(after))

    def examine(self) -> Sequence[Flaw]:
        return self._call("examine", self.inner.examine)

    def drop(self, name: str, seen: tuple[Id, int] | None = None) -> None:
        self._call("drop", self.inner.drop, name, seen)

    def scrub(self, context: Id | None = None) -> Sequence[str]:
        return self._call("scrub", self.inner.scrub, context)

    def close(self) -> None:
        self.inner.close()

    def _enter(self, call: str) -> bool:
        """Count a call; fail before it, or return whether to fail after it."""
        self.calls.append(call)
        number = len(self.calls)
        if not self._fail_at or number < self._fail_at or (number > self._fail_at and not self._lasting):
            return False
        if self._when == "before" or number > self._fail_at:
            raise self._fault()
        return True

    def _call(self, name: str, call: Callable[..., T], *args: Any) -> T:
        fault = self._enter(name)
        result = call(*args)
        if fault:
            raise self._fault()
        return result

    def _stream(self, name: str, items: Iterator[T]) -> Iterator[T]:
        """Return a stream; one that fails ends after its first item."""
        return self._broken(items) if self._enter(name) else items

    def _broken(self, items: Iterator[T]) -> Iterator[T]:
        for item in items:
            yield item
            break
        raise self._fault()

    def _fault(self) -> BaseException:
        return self._error or InjectedFault(f"An injected fault at call {self._fail_at} ({self._when}).")
