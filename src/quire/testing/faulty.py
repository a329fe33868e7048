"""A storage that fails on demand, to test that no failure leaves a half-done change."""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, ParamSpec, TypeVar

from quire.errors import StorageFailure
from quire.storage.base import MAX_KEY, Commit, Family, Head, Record, Storage

When = Literal["before", "after"]
P = ParamSpec("P")
T = TypeVar("T")


class InjectedFault(StorageFailure):
    """The failure that a `FaultyStorage` raises on demand."""

    code = "injected_fault"


class FaultyStorage:
    """Wraps a storage and fails at its k-th call, `before` or `after` the call is done.

    `after` simulates a lost acknowledgement: the commit is made, but the caller gets an error. A stream that fails
    `after` ends behind its first record. With `lasting`, every later call fails too until `heal()`. `fail_at=0` never
    fails and only counts. `error` is raised instead of `InjectedFault`.
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

    def head(self, context: str) -> Head | None:
        return self._call(self.inner.head, context)

    def get(self, context: str, family: Family, key: int) -> Record | None:
        return self._call(self.inner.get, context, family, key)

    def scan(
        self, context: str, family: Family, start: int = 0, stop: int = MAX_KEY, *, reverse: bool = False
    ) -> Iterator[Record]:
        fault = self._enter("scan")
        records = self.inner.scan(context, family, start, stop, reverse=reverse)
        return self._broken(records) if fault else records

    def members(
        self, context: str, family: Family, group: int, *, after: tuple[bytes, int] | None = None, reverse: bool = False
    ) -> Iterator[Record]:
        fault = self._enter("members")
        records = self.inner.members(context, family, group, after=after, reverse=reverse)
        return self._broken(records) if fault else records

    def commit(self, context: str, commit: Commit) -> None:
        self._call(self.inner.commit, context, commit)

    def fork(self, context: str, target: str, commit: Commit, below: Mapping[Family, int]) -> None:
        self._call(self.inner.fork, context, target, commit, below)

    def contexts(self, after: str = "") -> Iterator[str]:
        fault = self._enter("contexts")
        names = self.inner.contexts(after)
        return self._broken(names) if fault else names

    def drop(self, context: str) -> None:
        self._call(self.inner.drop, context)

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

    def _call(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        fault = self._enter(call.__name__)
        result = call(*args, **options)
        if fault:
            raise self._fault()
        return result

    def _broken(self, items: Iterator[T]) -> Iterator[T]:
        for item in items:
            yield item
            break
        raise self._fault()

    def _fault(self) -> BaseException:
        return self._error or InjectedFault(f"An injected fault at call {self._fail_at} ({self._when}).")
