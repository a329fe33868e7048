"""The sessions of a gateway: finds the line of a request, and records requests and replies.

Nothing here raises into the proxy: a request that cannot be recorded is still forwarded.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from os import urandom
from threading import RLock
from time import time
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct

from quire.errors import Conflict, NoSuchContext, QuireError
from quire.gateway.identity import ANONYMOUS, Item, ItemReader, Relation, compare, count_prompts, find_session
from quire.gateway.line import Line
from quire.gateway.replies import UndecodableBody, decode_body, read_reply
from quire.gateway.routing import Protocol, UpstreamName
from quire.gateway.spans import Spans, split_request, type_of
from quire.library import Library
from quire.model.tokens import VocabularyCounter
from quire.server.gateway_ledger import SESSIONS, Mode, check_mode, no_such_session
from quire.view.options import CompressionConfig
from quire.view.preamble import new_key
from quire.view.view import View

_OPEN_LINES = 64
_LINES_OF_KEY = 16
_WAITING_BYTES = 64 << 20
_JOB_BYTES = 4_096
_MAX_DECODED = 256 << 20
_START_BYTES = 200
_OK = 200
_TRIES = 5
T = TypeVar("T")
_log = logging.getLogger("quire.gateway")


class SessionInfo(Struct, kw_only=True):
    """What a gateway did for a line since it started. `name` is the name of its context, times are in seconds."""

    name: str
    mode: Mode
    model: str = ""
    requests: int = 0
    retries: int = 0
    errors: int = 0
    bypasses: int = 0
    folds: int = 0
    folded_requests: int = 0
    saved_tokens: int = 0
    last_status: int = 0
    last_tokens: int = 0
    updated: float = 0.0


@dataclass
class Call:
    """One request of a client, and what is known about it after it was read.

    `source` is the line that a call left for a branch of its own, and `shared` the number of items that both have.
    `view` is what was sent if it is not the original, `reserve` the tokens beside it, and `sent` the items.
    `shrunk` is a line and its smaller budget, with which a body that was too long was made again.
    `is_bypassed` is set if quire failed, so that the original was sent.
    """

    protocol: Protocol
    upstream: UpstreamName
    namespace: str
    headers: Mapping[bytes, bytes]
    body: bytes
    counts: bool = False
    plain: bytes = b""
    spans: Spans | None = None
    items: list[Item] = field(default_factory=list)
    prompts: int = 0
    line: Line | None = None
    source: Line | None = None
    shared: int = 0
    view: View | None = None
    reserve: int = 0
    sent: list[bytes] | None = None
    shrunk: tuple[Line, int] | None = None
    is_bypassed: bool = False

    @property
    def transcript(self) -> list[Item]:
        """The items without the system messages at the beginning."""
        return self.items[self.prompts :]

    @cached_property
    def session(self) -> str:
        """The name that the client gives its session."""
        return find_session(self.headers, self.spans.metadata if self.spans else b"")

    @property
    def has_tools(self) -> bool:
        """Whether the request has tools. Codex sends them as the first item of its input."""
        is_listed = self.spans is not None and self.spans.lists_tools
        return is_listed or any(type_of(item.raw) == "additional_tools" for item in self.items[:1])

    @property
    def is_anonymous(self) -> bool:
        """Whether the client names no session."""
        return self.session == ANONYMOUS

    @cached_property
    def base(self) -> str:
        """The name of the first line of the session. That of an anonymous one has the hash of the first item."""
        first = f"-{self.transcript[0].hash.hex()[:12]}" if self.is_anonymous else ""
        return f"{SESSIONS}{self.namespace}/{self.upstream}/{self.session}{first}"


class Reply(NamedTuple):
    """A response: `body` is complete if the upstream sent its end."""

    status: int
    content_type: str
    encoding: str
    body: bytes
    complete: bool


class Match(NamedTuple):
    """The line that a call belongs to, and how. For `new`, `epoch` and `side`, no line shares a reply with it."""

    kind: Literal["retry", "continue", "rewrite", "tentative", "branch", "new", "epoch", "side"]
    line: Line | None
    common: int = 0


class Sessions:
    """The lines of all sessions in a store. Its methods block; the proxy calls them in threads."""

    def __init__(
        self, library: Library, *, mode: Mode, budget: int, compression: CompressionConfig | None = None
    ) -> None:
        self.library = library
        self.mode = mode
        self.budget = budget
        self.modes: dict[str, Mode] = {}
        """The modes of lines, by name, that differ from the mode of the gateway."""
        self.infos: OrderedDict[str, SessionInfo] = OrderedDict()
        self._compression = compression
        self.count_tokens = VocabularyCounter().count
        self._reader = ItemReader()
        self._lines: OrderedDict[str, Line] = OrderedDict()
        self._names: dict[str, list[str]] = {}
        self._lock = RLock()
        self._locks: dict[str, RLock] = {}
        self._recorder = ThreadPoolExecutor(1, thread_name_prefix="quire-gateway-record")
        self._waiting = 0
        self._is_behind = False

    # Jobs after a response

    def submit(self, job: Callable[..., object], *arguments: object) -> None:
        """Run a job in the recorder's thread. If too many wait, skip it: the next request contains the same items."""
        size = _JOB_BYTES + sum(len(value.body) for value in arguments if isinstance(value, Call | Reply))
        if self._waiting + size > _WAITING_BYTES:
            if not self._is_behind:
                _log.warning("The record is behind: requests are recorded with a later one of their sessions.")
            self._is_behind = True
            return
        self._is_behind = False
        with self._lock:
            self._waiting += size
        try:
            self._recorder.submit(self._run, size, job, *arguments)
        except RuntimeError:  # the gateway stops
            self._waiting -= size

    def _run(self, size: int, job: Callable[..., object], *arguments: object) -> None:
        try:
            job(*arguments)
        except Exception:  # nothing that fails here may stop the recorder
            _log.exception("A request could not be recorded")
        finally:
            with self._lock:
                self._waiting -= size

    def drain(self) -> None:
        """Wait until all submitted jobs are done."""
        self._recorder.submit(int).result()

    def close(self) -> None:
        """Record what waits, and close the contexts and the store."""
        self._recorder.shutdown()
        with self._lock:
            for line in self._lines.values():
                line.ctx.close()
            self._lines.clear()
            self.library.close()

    def record(self, call: Call) -> None:
        """Record the items of a request that are new."""
        if not call.counts and self.read(call):
            with self.lock_of(call):
                self.settle(call)

    def finish(self, call: Call, reply: Reply) -> None:
        """Record the reply to a request. The client confirms it when it sends it back."""
        line = call.line
        if line is None:
            return
        with self.lock_of(call):
            info = self.info_of(line.name)
            info.last_status, info.updated = reply.status, time()
            info.bypasses += call.is_bypassed
            response = self._read_reply(call, reply) if reply.status == _OK else None
            if response is None:
                info.errors += 1
                return
            view = None if call.is_bypassed else call.view
            views = [view]  # after a conflict, it is not the view of the current state
            try:
                self._retry(
                    call, lambda: line.add_reply(response, len(call.transcript), views.pop() if views else None)
                )
            except NoSuchContext:
                return  # the next request records the conversation again
            if view is not None and call.spans is not None:  # learn how many tokens the model bills for the view
                with suppress(QuireError):
                    line.ctx.report_usage(response, call.spans.model or None, tools=call.reserve, view=view)

    def _read_reply(self, call: Call, reply: Reply) -> dict[str, Any] | None:
        try:
            body = decode_body(reply.body, reply.encoding, len(reply.body) * 100 + 1_000_000)
        except UndecodableBody as error:
            _log.warning("A reply was not recorded: %s", error)
            return None
        return read_reply(body, reply.content_type, call.protocol, complete=reply.complete)

    # The line of a request

    def read(self, call: Call) -> bool:
        """Read the transcript of a call. Return False if it has none that can be recorded."""
        encoding = call.headers.get(b"content-encoding", b"").decode("latin-1")
        try:
            call.plain = decode_body(call.body, encoding, max(len(call.body), _MAX_DECODED))
        except UndecodableBody as error:
            _log.warning("A request was not recorded: %s", error)
            return False
        call.spans = split_request(call.plain, call.protocol)
        if call.spans is None:
            return False
        try:
            call.items = self._reader.read(call.spans.array, call.protocol, _reading_key(call))
        except (ValueError, RecursionError):
            return False
        call.prompts = count_prompts(call.items)
        return bool(call.transcript)

    def settle(self, call: Call) -> Match:
        """Find the line of a call and make it equal to the transcript."""
        return self._retry(call, lambda: self._apply(call, self.find(call)))

    def branch(self, call: Call) -> Match:
        """Do the same, but begin a branch for a transcript that leaves its line and is not continued yet."""

        def work() -> Match:
            match = self.find(call)
            return self._apply(call, match._replace(kind="branch") if match.kind == "tentative" else match)

        return self._retry(call, work)

    def _retry(self, call: Call, work: Callable[[], T]) -> T:
        """Do work on the lines of a call, again if another process has changed or deleted one of them."""
        for _ in range(_TRIES - 1):
            try:
                return work()
            except (Conflict, NoSuchContext):
                self._reload(call)
        return work()

    def _reload(self, call: Call) -> None:
        """Read the open lines of a session again. Forget those whose context was deleted."""
        names = self._names.get(call.base, [])
        with self._lock:
            found = [(name, self._lines[name]) for name in names if name in self._lines]
        for name, line in found:
            try:
                line.load()
            except NoSuchContext:
                names.remove(name)
                with self._lock:
                    self._lines.pop(name, None)

    def find(self, call: Call) -> Match:
        """Return the line that a call belongs to. Nothing is changed."""
        items, best = call.transcript, Match("side", None)
        lines = list(self._lines_of(call))
        for line in lines:
            relation = compare(items, line.known, is_anonymous=call.is_anonymous)
            if relation.kind != "nothing" and (best.line is None or relation.common > best.common):
                best = Match(relation.kind, line, relation.common)
        return self._find_start(call, lines) if best.line is None else best

    def _find_start(self, call: Call, lines: list[Line]) -> Match:
        """Return the match of a transcript that has no reply in common with a line: `side`, `new` or `epoch`."""
        is_named = b"x-quire-session" in call.headers and not lines
        has_reply = any(item.role == "assistant" for item in call.transcript)
        if not call.has_tools and not has_reply and not is_named:
            return Match("side", None)
        if not lines or call.is_anonymous:
            return Match("new", None)
        main = lines[0]
        is_older = any(_shares_reply(compare(call.transcript, known)) for line in lines for known in line.past)
        if is_older or main.ctx.pending_calls():  # a sub-agent while the main agent waits for it
            return Match("new", None)
        return Match("epoch", main)

    def _apply(self, call: Call, match: Match) -> Match:
        """Make the line of a call equal to its transcript."""
        items, line = call.transcript, match.line
        if match.kind == "side":
            return match
        if match.kind == "tentative" and line is not None:
            self._count(call, line)
            return match
        if match.kind == "new" or line is None:
            line = self._open(self._free_name(call), call.protocol, call.plain)
            self._names[call.base].insert(0, line.name)
            line.append(items)
        elif match.kind == "branch":
            line = self._branch(call, line, match.common)
        elif match.kind == "epoch":
            line.begin_epoch()
            line.append(items)
        elif match.kind == "rewrite":
            line.rewrite(items, match.common, call.view)
        elif match.kind == "continue":
            line.append(items[match.common :], call.view)
        call.line = line
        names = self._names.get(call.base, [])
        names.sort(key=lambda name: name != line.name)  # the line in use is the first one
        self._count(call, line, retries=match.kind == "retry")
        return match._replace(line=line)

    def _branch(self, call: Call, line: Line, common: int) -> Line:
        """Return a new line for a transcript that leaves another one: a fork without the items after `common`."""
        name = self._free_name(call)
        line.ctx.fork(name)
        fork = self._open(name, call.protocol)
        self._names[call.base].insert(0, name)
        call.source, call.shared = line, fork.truncate(common)
        fork.append(call.transcript[call.shared :])
        return fork

    def _count(self, call: Call, line: Line, *, retries: bool = False) -> None:
        info = self.info_of(line.name)
        info.model = call.spans.model if call.spans else ""
        info.requests += 1
        info.retries += retries
        info.updated = time()

    def info_of(self, name: str) -> SessionInfo:
        """Return the figures of a line."""
        with self._lock:
            info = self.infos.get(name)
            if info is None:
                info = self.infos[name] = SessionInfo(name=name, mode=self.mode_of(name))
                if len(self.infos) > 10 * _OPEN_LINES:
                    self.infos.popitem(last=False)
            return info

    def mode_of(self, name: str) -> Mode:
        """Return the mode of a line."""
        return self.modes.get(name, self.mode)

    @property
    def may_fold(self) -> bool:
        """Whether any line is in the mode `fold`."""
        return self.mode == "fold" or "fold" in self.modes.values()

    def set_mode(self, name: str, mode: Mode | None) -> None:
        """Set the mode of one line; None is the mode of the gateway.

        Raise `InvalidValue` for an unknown mode, and `NoSuchContext` for an unknown line.
        """
        if mode is not None:
            check_mode(mode)
        if not (self.library.exists(name) and name.startswith(SESSIONS)):
            raise no_such_session(name)
        with self._lock:
            if mode is None:
                self.modes.pop(name, None)
            else:
                self.modes[name] = mode
            if name in self.infos:
                self.infos[name].mode = self.mode_of(name)

    # Open lines

    def _lines_of(self, call: Call) -> Iterator[Line]:
        """Yield the lines of the session of a call, the newest first."""
        base = call.base
        names = self._names.get(base)
        if names is None:
            found = [name for name in self.library.list(prefix=base) if name == base or name.startswith(f"{base}~")]
            found.sort(key=lambda name: self.library.info(name).updated_at, reverse=True)
            names = self._names[base] = found
            if len(self._names) > 10 * _OPEN_LINES:
                self._names.pop(next(iter(self._names)))
        for name in names[:_LINES_OF_KEY]:
            yield self._open(name, call.protocol)

    def _free_name(self, call: Call) -> str:
        names, base = self._names[call.base], call.base
        number = len(names) + 1
        while (name := base if number == 1 else f"{base}~{number}") in names or self.library.exists(name):
            number += 1
        return name

    def _open(self, name: str, protocol: Protocol, text: bytes = b"") -> Line:
        with self._lock:
            line = self._lines.get(name)
        if line is None:
            key = new_key(urandom(8))
            while key.encode() in text:  # so that nothing in the transcript looks like a line of quire
                key = new_key(urandom(8))
            options: Any = {"preamble": "", "compression": self._compression, "key": key}
            ctx = self.library.open(name, budget=self.budget, **options)
            line = Line(ctx, protocol)
        with self._lock:
            self._lines[name] = line
            self._lines.move_to_end(name)
            while len(self._lines) > _OPEN_LINES:
                self._lines.popitem(last=False)[1].ctx.close()
        return line

    def lock_of(self, call: Call) -> RLock:
        """Return the lock of the lines of a session."""
        with self._lock:
            if len(self._locks) > 100 * _OPEN_LINES:
                self._locks.clear()  # a holder keeps its lock; a second lock for its session is rare
            return self._locks.setdefault(call.base, RLock())


def _reading_key(call: Call) -> str:
    """Return the cache key of a call. Transcripts with the same key have most items in common."""
    start = call.spans.array[:_START_BYTES].hex() if call.is_anonymous and call.spans else ""
    return f"{call.namespace} {call.session} {start}"


def _shares_reply(relation: Relation) -> bool:
    return relation.kind in ("retry", "continue", "rewrite", "branch") and relation.common > 1
