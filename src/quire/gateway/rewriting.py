"""Rewriting: a request above the budget gets the list of messages of a view that fits.

`Rewriter.prepare` returns the body to send, or None for the original bytes: below the budget, for a side call, and
whenever something here fails or is not certain.
"""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import RLock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from quire.errors import IrreducibleFloor
from quire.gateway.layout import (
    PREAMBLE,
    ItemPiece,
    LastWrite,
    Layout,
    TextPiece,
    ViewLayouter,
    Writer,
    drop_reasoning,
    drop_thinking,
    extend_layout,
    find_environment,
    pin_items,
)
from quire.gateway.line import Line
from quire.gateway.sessions import Call, Match, Sessions
from quire.gateway.spans import replace_array
from quire.providers.legal import check_legal
from quire.view.preamble import context_key

_LOCK_SECONDS = 5.0
_SHRINK = 0.8
_MIN_BUDGET = 1_000
_FRAMES = 256
_PER_VALUE = 16
_PINNED_SHARE = 4
_NO_LOOP = 1 << 40
"""Larger than the number of any item. With it, the thinking of a tool loop may be left out."""
_log = logging.getLogger("quire.gateway")
_encode = msgspec.json.Encoder(order="deterministic").encode


class Frame(NamedTuple):
    """The system prompt and tools of a request: their digest, which signed thinking depends on, and their tokens."""

    digest: str
    tokens: int


@dataclass
class LineState:
    """What the rewriter knows about an epoch of a line: its last layout, the checked texts, where thinking is left out.

    `previous` is the layout of the request before. `bound_loop` is the start of a tool loop that is not folded further,
    because its thinking must be sent and the upstream refused it after other messages. `tokens` are those of the items
    about the environment, by their hash. `layouter` and `written` know the last layout, so that only new messages are
    laid out and written.
    """

    layouter: ViewLayouter
    layout: Layout | None = None
    previous: Layout | None = None
    checked: tuple[TextPiece, ...] = ()
    strip: int = 0
    bound_loop: int = -1
    tokens: dict[bytes, int] = field(default_factory=dict)
    written: LastWrite = field(default_factory=LastWrite)


class Rewriter:
    """Rewrites requests. Its methods block; the proxy calls them in threads."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._states: WeakKeyDictionary[Line, LineState] = WeakKeyDictionary()
        self._frames: OrderedDict[bytes, Frame] = OrderedDict()
        self._lock = RLock()

    def prepare(self, call: Call) -> bytes | None:
        """Record a call, and return the body to send instead of the original one; None to send the original."""
        return self._guard(call, self._prepare)

    def shrink(self, call: Call) -> bytes | None:
        """Return a body of at most 0.8 of what was sent, after the upstream said that it is too long."""
        return self._guard(call, self._shrink)

    def keep_budget(self, call: Call) -> None:
        """Use the budget of `shrink` for later requests too, after the upstream accepted the body."""
        if call.shrunk is not None:
            line, budget = call.shrunk
            line.ctx.budget = budget

    def strip(self, call: Call) -> bytes | None:
        """Return the body without thinking, after the upstream refused a signature. Later requests omit it too."""
        return self._guard(call, self._strip)

    def _guard(self, call: Call, work: Any) -> bytes | None:
        """Do the work with the lines of the session locked. If that fails, the original bytes are sent."""
        try:
            if call.spans is None and not self._sessions.read(call):
                return None
            lock = self._sessions.lock_of(call)
            if not lock.acquire(timeout=_LOCK_SECONDS):
                call.is_bypassed = True
                return None
            try:
                found: bytes | None = work(call)
                return found
            finally:
                lock.release()
        except IrreducibleFloor as error:  # it cannot fit: the provider refuses it, and the client gets that error
            call.is_bypassed = True
            self._warn_too_large(call, error)
        except Exception:  # a request is never lost because of quire
            _log.exception("A request was passed on unchanged")
            call.is_bypassed = True
        return None

    def _warn_too_large(self, call: Call, error: IrreducibleFloor) -> None:
        """Log once for a session that its requests cannot fit the budget."""
        if call.line is not None and call.shrunk is None and not self._sessions.info_of(call.line.name).bypasses:
            frame = self._frame(call).tokens
            _log.warning(
                "%s: %s tokens of a request cannot be folded (%s are its system prompt and tools), and the budget is"
                " %s. It is sent unchanged. Give a larger --budget.",
                call.line.name,
                f"{frame + error.tokens:,}",
                f"{frame:,}",
                f"{call.line.ctx.budget:,}",
            )

    def _prepare(self, call: Call) -> bytes | None:
        sessions = self._sessions
        match = sessions.find(call) if call.counts else sessions.settle(call)
        line = match.line
        if line is None or sessions.mode_of(line.name) != "fold" or line.is_broken:
            return None
        state = self._state(line)
        state.previous = state.layout
        if call.counts or match.kind in ("retry", "tentative"):
            return self._repeat(call, match, line)
        body = self._assemble(call, line, self._render(call, line), len(call.transcript))
        if body is None and state.bound_loop == _find_loop(call):
            call.is_bypassed = True
        return body

    def _repeat(self, call: Call, match: Match, line: Line) -> bytes | None:
        """Return the body for a transcript that adds nothing to its line, or nothing yet."""
        layout = self._state(line).layout or self._render(call, line)
        common = len(call.transcript) if match.kind == "retry" else match.common
        found = layout.before(common)
        if found is None and not call.counts and match.kind == "tentative":  # it leaves the line where it is folded
            match = self._sessions.branch(call)
            if match.line is not None:
                return self._assemble(call, match.line, self._render(call, match.line), len(call.transcript))
        return None if found is None else self._assemble(call, line, found, common)

    def _render(self, call: Call, line: Line) -> Layout:
        """Render the view of a line; this may fold. A folded view keeps the messages about the client's environment."""
        frame, state = self._frame(call), self._state(line)
        if call.source is not None and state.layout is None:
            source = self._state(call.source)
            state.strip = min(source.strip, call.shared)
            state.previous = source.layout.before(call.shared) if source.layout is not None else None
        if state.bound_loop == _find_loop(call):
            return self._extend(call, state)
        pinned = self._find_pinned(call, line, state)
        room = sum(pinned.values())
        is_folded = state.layout is not None and state.layout.pieces is not None
        layout = self._draw(call, line, frame, room if is_folded else 0)
        if layout.pieces is not None and not is_folded and room:
            layout = self._draw(call, line, frame, room)
        call.reserve = frame.tokens + sum(tokens for n, tokens in pinned.items() if not layout.shows(n))
        state.layout = pin_items(layout, list(pinned))
        return state.layout

    def _extend(self, call: Call, state: LineState) -> Layout:
        """Return the layout of the request before with the new items after it."""
        state.layout = extend_layout(state.previous, len(call.transcript))
        call.view = None  # what is sent is no view of the current state
        return state.layout

    def _find_pinned(self, call: Call, line: Line, state: LineState) -> dict[int, int]:
        """Return the tokens of the items about the environment; none if they need more than a quarter of the budget."""
        items, known = call.transcript, state.tokens
        numbers = find_environment(items)
        state.tokens = {
            items[n].hash: known.get(items[n].hash) or self._sessions.count_tokens(items[n].raw.decode())
            for n in numbers
        }
        found = {n: state.tokens[items[n].hash] for n in numbers}
        return found if _PINNED_SHARE * sum(found.values()) <= line.ctx.budget else {}

    def _draw(self, call: Call, line: Line, frame: Frame, more: int) -> Layout:
        """Draw the view of a line with room for the frame of a request and `more` tokens."""
        tools = [{"name": f"frame_{frame.digest}"}] if line.has_thinking else None  # only thinking is bound
        model = call.spans.model if call.spans else ""
        view = line.ctx.render(reserve=frame.tokens + more, tools=tools, model=model or None)
        key = line.ctx.pages._engine.read(context_key)
        call.view = view
        info = self._sessions.info_of(line.name)
        info.last_tokens = view.tokens + frame.tokens + more
        if view.fold is not None and view.fold.exchanges:
            info.folds += 1
            info.saved_tokens += view.fold.saved
        return self._state(line).layouter.lay_out(view, len(line.hashes), key)

    def _assemble(self, call: Call, line: Line, layout: Layout, total: int) -> bytes | None:
        """Return the body with the pieces of a layout of the first `total` items, and the other items as they are."""
        state = self._state(line)
        if call.spans is None or (layout.pieces is None and not state.strip):
            return None
        items = call.transcript
        if layout.pieces is None and call.protocol == "responses":  # the items of a reply belong together
            layout = Layout((ItemPiece(tuple(range(min(total, state.strip))), thinking=False),), state.strip)
            total = min(total, state.strip)
        elif layout.pieces is None:
            layout = Layout(tuple(ItemPiece((n,)) for n in range(total)), total)
        loop = _find_loop(call)
        writer = Writer(items, call.protocol, loop=loop, strip=state.strip, last=state.written)
        written = writer.write(layout)
        prompts = [item.raw for item in call.items[: call.prompts]]
        sent = [*prompts, *written, *(item.raw for item in items[total:])]
        original = [item.raw for item in call.items]
        if sent == original:
            return None
        front = layout.front
        if front != state.checked and not _is_legal(sent, original, call):
            call.is_bypassed = True
            return None
        state.checked = front
        body = replace_array(call.plain, call.spans, sent, call.protocol)
        if body is None:
            call.is_bypassed = True
            return None
        call.sent = sent
        if call.line is not None:
            self._sessions.info_of(call.line.name).folded_requests += bool(front)
        return body

    def _shrink(self, call: Call) -> bytes | None:
        match = self._sessions.find(call)
        line = call.line or match.line
        if line is None or line.is_broken or self._sessions.mode_of(line.name) != "fold":
            return None
        view = call.view or line.ctx.render(preview=True)
        used = view.tokens + self._frame(call).tokens
        before = line.ctx.budget
        line.ctx.budget = max(_MIN_BUDGET, int(_SHRINK * min(used, before)))
        call.shrunk = (line, line.ctx.budget)
        try:
            layout = self._render(call, line)
        finally:
            line.ctx.budget = before
        total = match.common if match.kind == "tentative" else len(call.transcript)
        found = layout.before(total)
        return None if found is None else self._assemble(call, line, found, total)

    def _strip(self, call: Call) -> bytes | None:
        if call.spans is None:
            return None
        loop = _find_loop(call)
        if call.line is not None:
            state = self._state(call.line)
            state.strip = min(len(call.transcript), loop)
            if call.sent is not None and loop < len(call.transcript):
                state.bound_loop = loop
                return self._assemble(call, call.line, self._extend(call, state), len(call.transcript))
        sent = call.sent or [item.raw for item in call.items]
        if call.protocol == "responses":
            kept = drop_reasoning(sent)
        else:
            fixed = {item.raw for item in call.transcript[loop:]}
            kept = [left for raw in sent if (left := raw if raw in fixed else drop_thinking(raw)) is not None]
        return None if kept == sent else replace_array(call.plain, call.spans, kept, call.protocol)

    def _state(self, line: Line) -> LineState:
        with self._lock:
            state = self._states.get(line)
            if state is None or state.layouter.epoch != line.epoch:
                state = self._states[line] = LineState(ViewLayouter(line.epoch))
            return state

    def _frame(self, call: Call) -> Frame:
        """Return the frame of a request. Cache marks are not part of it."""
        if call.spans is None:
            return Frame("", 0)
        raws = (call.spans.system, call.spans.tools, *(item.raw for item in call.items[: call.prompts]))
        key = blake2b(b"\0".join(raws), digest_size=16).digest()
        with self._lock:
            found = self._frames.get(key)
        if found is None:
            values = [_without_marks(msgspec.json.decode(raw)) for raw in raws if raw]
            digest = blake2b(_encode(values), digest_size=8).hexdigest()
            count = self._sessions.count_tokens
            tokens = sum(count(msgspec.json.encode(value).decode()) + _PER_VALUE for value in values)
            found = Frame(digest, tokens + count(PREAMBLE))
            with self._lock:
                self._frames[key] = found
                if len(self._frames) > _FRAMES:
                    self._frames.popitem(last=False)
        return found


def _find_loop(call: Call) -> int:
    """Return the number of the first item whose thinking must be sent; `_NO_LOOP` if there is none.

    With manual thinking, it is the one after the last message of the user that is no result.
    """
    if call.spans is None or not call.spans.has_manual_thinking:
        return _NO_LOOP
    return max((n for n, item in enumerate(call.transcript) if item.role == "user"), default=-1) + 1


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_marks(inner) for key, inner in value.items() if key != "cache_control"}


def _is_legal(sent: Sequence[bytes], original: Sequence[bytes], call: Call) -> bool:
    """Return whether the new list breaks no rule of the provider that the original list obeys."""
    problems, known = (
        {problem.rule for problem in check_legal([msgspec.json.decode(raw) for raw in raws], call.protocol)}
        for raws in (sent, original)
    )
    if problems - known:
        _log.error("A view breaks rules of the provider: %s", ", ".join(sorted(problems - known)))
    return not problems - known
