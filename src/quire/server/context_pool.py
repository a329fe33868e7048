"""The pool of open contexts, which closes the least recently used ones, and the caches of each open context.

The store holds all state. Each use of a context first reads what other processes wrote, so that any number of servers
can work on one store.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from operator import is_
from threading import Lock, RLock
from typing import Any, NamedTuple

from msgspec import Raw

from quire.context import Context
from quire.core.memory import SizedCache
from quire.errors import Busy, NoSuchContext, short_repr
from quire.library import Library
from quire.model.clock import to_datetime
from quire.model.pages import PageIndex
from quire.storage.base import check_context_name
from quire.view.explain import Stats
from quire.view.sent import LastSent
from quire.view.view import View
from quire.windows.app import App

_MAX_VIEWS = 8
_MAX_ENCODED = 3
_MAX_STATS = 1_000
_FOLLOWED_ENTRIES = 100
"""After more new entries than this, the names of pages are looked up again."""
_SEARCHED_ENTRIES = 1_000
"""The newest entries that are searched for a message of the assistant."""
_LOCK_TIMEOUT = 20.0


class EncodedView(NamedTuple):
    """The JSON of a view, and the number of the message in which each part begins."""

    view: View
    places: list[int]
    messages: Raw
    system: Any
    items: Raw

    def matches(self, view: View) -> bool:
        """Return whether another view has the same parts at the same entry."""
        mine, theirs = self.view.parts, view.parts
        return self.view.seq == view.seq and len(mine) == len(theirs) and all(map(is_, mine, theirs))


class UndoneEntries:
    """The entries that undos of one context reverted. Reads only what it has not read before."""

    def __init__(self) -> None:
        self._low = self._high = 0
        self._undoes: dict[int, int] = {}

    def since(self, context: Context, first: int) -> set[int]:
        """Read the undos from entry `first` to the newest; return the entries that are undone now."""
        head = context.seq
        if head < self._high:  # the context was deleted and created again
            self._low = self._high = 0
            self._undoes = {}
        low = min(first, self._low) if self._high else first
        spans = [(self._high, head), (low - 1, self._low - 1)] if self._high else [(low - 1, head)]
        for after, last in spans:
            if last > after:
                for entry in context.history(max(0, after), before=last + 1, operation="undo"):
                    self._undoes[entry.seq] = entry.undoes or 0
        self._low, self._high = low, head
        found: set[int] = set()
        for seq in sorted(self._undoes, reverse=True):
            if seq not in found:  # an undo that was itself undone has no effect
                found.add(self._undoes[seq])
        return found


class LastCall:
    """The view that the model's newest answer was based on, for measuring the provider's prompt cache."""

    def __init__(self) -> None:
        self._known: tuple[int, int | None] = (-1, None)
        self._sent: tuple[int, LastSent | None] = (-1, None)
        self._views: SizedCache[tuple[int, int], View] = SizedCache(_MAX_VIEWS)

    def sent(self, context: Context) -> LastSent | None:
        """Return the last view that was sent, as it is stored; None if there is none."""
        if self._sent[0] != context.seq:
            self._sent = (context.seq, context.last_sent())
        return self._sent[1]

    def view(self, context: Context, budget: int) -> View | None:
        """Return the last view that was sent. If it is unknown, render the state before the newest answer.

        Return None if there is no recent answer.
        """
        sent = self.sent(context)
        if sent is not None and sent.is_exact and sent.budget == budget:
            return sent.view
        seq = self._seq_before_answer(context)
        if seq is None:
            return None
        view = self._views.get((seq, budget))
        if view is None:
            view = context.as_of(seq).render(max_tokens=budget, preview=True)
            self._views.put((seq, budget), view)
        return view

    def _seq_before_answer(self, context: Context) -> int | None:
        if self._known[0] != context.seq:
            entries = islice(context.history(reverse=True), _SEARCHED_ENTRIES)
            found = next((entry.seq for entry in entries if entry.operation == "assistant"), None)
            self._known = (context.seq, found - 1 if found else None)
        return self._known[1]


class OpenContext:
    """An open context of a pool, with caches of what was shown of it."""

    def __init__(self, pool: "ContextPool", context: Context) -> None:
        self.pool = pool
        self.context = context
        self.lock = RLock()
        self._forget()

    def _forget(self) -> None:
        self._epoch = self.context.pages._engine.epoch
        self.undone = UndoneEntries()
        self.last_call = LastCall()
        self._views: SizedCache[int, View] = SizedCache(_MAX_VIEWS)
        self._encoded: SizedCache[tuple[int, str], EncodedView] = SizedCache(_MAX_ENCODED)
        self._names: dict[PageIndex, str] = {}
        self._names_seq = 0

    def refresh(self) -> None:
        """Read the changes of other processes. Clears the caches if the context was deleted and created again."""
        self.context.refresh()
        if self._epoch != self.context.pages._engine.epoch:
            self._forget()

    def replace_view(self, view: View) -> View | None:
        """Remember a view as the last one of its budget; return the one before it."""
        before = self._views.get(view.budget)
        self._views.put(view.budget, view)
        return before

    def page_names(self, view: View) -> Mapping[PageIndex, str]:
        """Return the names of the pages in a view. Looks up only unknown pages and those that entries changed."""
        seq = self.context.seq
        if not self._names_seq <= seq <= self._names_seq + _FOLLOWED_ENTRIES:
            self._names = {}
        elif seq > self._names_seq:
            for entry in self.context.history(self._names_seq):
                for index in entry.pages:
                    self._names.pop(index, None)
        self._names_seq = seq
        missing = {shown.index for part in view.parts for shown in part.pages} - self._names.keys()
        if missing:
            self._names |= dict.fromkeys(missing, "") | self.context.pages.names(missing)
        return self._names

    def encoded_view(self, view: View, form: str, encode: Callable[[], EncodedView]) -> EncodedView:
        """Return the JSON of a view; calls `encode` only if the context or a part of the view changed."""
        key = (view.budget, form)
        found = self._encoded.get(key)
        if found is None or not found.matches(view):
            found = encode()
            self._encoded.put(key, found)
        return found

    def _entry(self) -> tuple[int, datetime]:
        return self.context.seq, to_datetime(self.context.pages._engine.state.head.updated)

    def known_stats(self) -> Stats | None:
        """Return the statistics of the context at its current entry, if they were counted."""
        return self.pool.known_stats(self.context.name, *self._entry())

    def stats(self) -> Stats:
        """Return the statistics of the context at its current entry. Counting reads every page."""
        stats = self.known_stats()
        if stats is None:
            stats = self.context.stats()
            self.pool.keep_stats(self.context.name, *self._entry(), stats)
        return stats


class ContextPool:
    """Open contexts by name, at most `limit` of them."""

    def __init__(self, library: Library, *, budget: int | None, apps: Sequence[type[App]], limit: int = 32) -> None:
        self.library = library
        self.budget = budget
        self._apps = apps
        self._limit = limit
        self._lock = Lock()
        self._open: OrderedDict[str, OpenContext] = OrderedDict()
        self._stats: SizedCache[str, tuple[int, datetime, Stats]] = SizedCache(_MAX_STATS)

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def use(self, name: str) -> Iterator[OpenContext]:
        """Lend a context, refreshed, to this thread only.

        Raise `NoSuchContext`, or `Busy` if another thread uses the context for too long.
        """
        opened = self._find_or_open(check_context_name(name))
        if not opened.lock.acquire(timeout=_LOCK_TIMEOUT):
            raise Busy(f"Context {name!r} has been in use for {_LOCK_TIMEOUT:.0f} seconds: retry.")
        try:
            try:
                opened.refresh()
            except NoSuchContext:  # deleted by another process
                self.discard(name)
                raise no_such_context(name) from None
            yield opened
        finally:
            opened.lock.release()

    def discard(self, name: str) -> None:
        """Remove a context from the pool without closing it."""
        with self._lock:
            self._open.pop(name, None)

    def close(self) -> None:
        """Close all contexts of the pool."""
        with self._lock:
            leaving = list(self._open.values())
            self._open.clear()
        for opened in leaving:
            opened.context.close()

    def known_stats(self, name: str, seq: int, updated: datetime) -> Stats | None:
        """Return the statistics that were counted at exactly this entry, if any."""
        with self._lock:
            found = self._stats.get(name)
            return found[2] if found is not None and found[:2] == (seq, updated) else None

    def keep_stats(self, name: str, seq: int, updated: datetime, stats: Stats) -> None:
        """Remember statistics for `known_stats`."""
        with self._lock:
            self._stats.put(name, (seq, updated, stats))

    def _find_or_open(self, name: str) -> OpenContext:
        with self._lock:
            if name in self._open:
                self._open.move_to_end(name)
                return self._open[name]
        fresh = OpenContext(self, self._open_context(name))
        with self._lock:
            opened = self._open.setdefault(name, fresh)
            self._open.move_to_end(name)
            leaving = [self._open.popitem(last=False)[1] for _ in range(len(self._open) - self._limit)]
        if opened is not fresh:  # another thread was faster
            fresh.context.close()
        for one in leaving:
            if one.lock.acquire(blocking=False):  # a thread that uses it keeps it open
                one.context.close()
                one.lock.release()
        return opened

    def _open_context(self, name: str) -> Context:
        if not self.library.exists(name):
            raise no_such_context(name)
        context = self.library.open(name, create=False)
        for app in self._apps:
            context.windows.register(app)
        return context


def no_such_context(name: str) -> NoSuchContext:
    """Return the error for a name that names no context."""
    return NoSuchContext(f"No context {short_repr(name)} in this store; GET /api/contexts lists the contexts.")
