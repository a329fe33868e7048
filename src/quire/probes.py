"""Probes: they report the operations of this process to observers, such as `quire.metrics` and `quire.otel`.

`observe` wraps the functions that do the work, and the last `unobserve` restores them. So a program without observers
pays nothing: its functions are the original ones.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import wraps
from importlib import import_module
from inspect import isawaitable
from threading import Lock
from time import perf_counter
from typing import Any, Literal, Protocol

from quire.core.engine import Engine
from quire.errors import InvalidValue
from quire.providers.usage import read_usage
from quire.storage.overlay import OverlayStorage

Kind = Literal["turn", "wait", "render", "fold", "commit", "find", "tool", "model", "usage"]
Function = Callable[..., Any]


class Operation:
    """One operation of this process.

    `facts` are names and numbers. `content` has texts of users and models. `attached` is False if other code of the
    program runs between its start and its end.
    """

    __slots__ = ("_marks", "_started", "attached", "content", "context", "error", "facts", "kind", "seconds")

    def __init__(self, kind: Kind, context: str, *, attached: bool = True, **facts: Any) -> None:
        self.kind = kind
        self.context = context
        self.attached = attached
        self.facts: dict[str, Any] = facts
        self.content: dict[str, Any] = {}
        self.error: BaseException | None = None
        self.seconds = 0.0
        self._started = 0.0
        self._marks: list[tuple[Observer, Any]] = []

    def start(self, parents: "Parents | None" = None) -> None:
        """Report the start to all observers. `parents` has, by observer, what `Observer.parent` returned."""
        known = dict(parents or ())
        for observer in _observers:
            mark = _call(observer.start, self, known.get(observer))
            self._marks.append((observer, mark))
        self._started = perf_counter()

    def detach(self) -> None:
        """Report that other code of the program runs before this operation ends."""
        self._marks = [(observer, _call(observer.detach, self, mark)) for observer, mark in self._marks]

    def finish(self, error: BaseException | None = None) -> None:
        """Report the end to the observers that know the start."""
        self.seconds = perf_counter() - self._started
        self.error = error
        for observer, mark in reversed(self._marks):
            _call(observer.finish, self, mark)


class Observer(Protocol):
    """Receives the operations of this process, in the threads in which they run."""

    def parent(self) -> Any:
        """Return the current parent, for `start` of an operation that begins in another thread."""

    def start(self, operation: Operation, parent: Any) -> Any:
        """Handle the start of an operation. The returned value is the `mark` for `detach` and `finish`."""

    def detach(self, operation: Operation, mark: Any) -> Any:
        """Handle that an operation ends later, maybe in another thread. Return the new `mark` for `finish`."""

    def finish(self, operation: Operation, mark: Any) -> None:
        """Note the end of an operation."""


Parents = list[tuple[Observer, Any]]
_observers: tuple[Observer, ...] = ()
_originals: list[tuple[Any, str, Function]] = []
_lock = Lock()


def observe(observer: Observer) -> None:
    """Report all operations to an observer from now on."""
    global _observers
    with _lock:
        if observer in _observers:
            return
        if not _originals:
            for module, _, _ in _PROBES:
                import_module(module)  # all of them first: a later import would take a wrapped function as the original
            for module, path, wrap in _PROBES:
                _replace(module, path, wrap)
        _observers = (*_observers, observer)


def unobserve(observer: Observer) -> None:
    """Stop reporting to an observer."""
    global _observers
    with _lock:
        _observers = tuple(one for one in _observers if one is not observer)
        if not _observers:
            while _originals:
                setattr(*_originals.pop())


def _replace(module: str, path: str, wrap: Callable[[Function], Function]) -> None:
    owner: Any = import_module(module)
    *classes, name = path.split(".")
    for part in classes:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    _originals.append((owner, name, original))
    setattr(owner, name, wraps(original)(wrap(original)))


def _call(function: Callable[..., Any], *given: Any) -> Any:
    """Call an observer. Its errors are logged: they must not reach the program."""
    try:
        return function(*given)
    except Exception:
        import logging

        logging.getLogger("quire").exception("An observer failed")
        return None


@contextmanager
def _operation(operation: Operation) -> Iterator[Operation]:
    operation.start()
    try:
        yield operation
    except BaseException as error:
        operation.finish(error)
        raise
    operation.finish()


# The wrapped functions. Each has the parameters of the original one.


def _render(original: Function) -> Function:
    def render(self: Any, options: Any, *rest: Any) -> Any:
        with _operation(Operation("render", _context(self._engine))) as done:
            view = original(self, options, *rest)
            done.facts |= {
                "tokens": view.tokens,
                "budget": view.budget,
                "cached": view.shared_prefix,
                "parts": view.by_kind(),
                "is_preview": view.request is None,
            }
            return view

    return render


def _fold(original: Function) -> Function:
    def fold(self: Any, *given: Any, **named: Any) -> Any:
        with _operation(Operation("fold", _context(self._engine))) as done:
            found = original(self, *given, **named)
            if found[1] is not None:
                done.facts |= {"exchanges": found[1].exchanges, "chapters": found[1].chapters, "saved": found[1].saved}
            return found

    return fold


def _write(original: Function) -> Function:
    def once(self: Any, operation: str, storage: Any, context: str, commit: Any, *rest: Any) -> Any:
        if isinstance(storage, OverlayStorage):  # a temporary block or a transaction commits this at its end
            return original(self, operation, storage, context, commit, *rest)
        with _operation(Operation("commit", context, operation=operation, seq=commit.seq)):
            return original(self, operation, storage, context, commit, *rest)

    return once


def _find(original: Function) -> Function:
    def find(state: Any, query: Any, limit: int = 10, **named: Any) -> Any:
        with _operation(Operation("find", state.context, limit=limit)) as done:
            done.content["query"] = query
            hits = original(state, query, limit, **named)
            done.facts["hits"] = len(hits)
            return hits

    return find


def _acquire(original: Function) -> Function:
    def acquire(storage: Any, context: str, **named: Any) -> Any:
        with _operation(Operation("wait", context)):
            return original(storage, context, **named)

    return acquire


def _run_turn(original: Function) -> Function:
    @contextmanager
    def run_turn(engine: Engine, actor: str, key: Any, *rest: Any, **named: Any) -> Iterator[Any]:
        outer, begun = engine.turn, original(engine, actor, key, *rest, **named)
        with _operation(Operation("turn", _context(engine))) as done, begun as turn:
            done.facts |= {"state": turn.state, "joins": turn is outer}
            yield turn

    return run_turn


def _answer(original: Function) -> Function:
    def answer(self: Any, call: Any, arguments: Any = None) -> Any:
        name = call if isinstance(call, str) else getattr(call, "name", None)
        known = name if isinstance(name, str) and name in self else "unknown"
        done = Operation("tool", _context(self._context.agent._engine), tool=known, call=getattr(call, "id", None))
        with _operation(done):
            done.content["arguments"] = getattr(call, "arguments", arguments)
            found = original(self, call, arguments)
            done.facts["failed"] = found.failed
            done.content["result"] = found.text
            return found

    return answer


def _runner(original: Function) -> Function:
    def runner(self: Any, call: Any) -> Any:
        run = original(self, call)
        if run is None or call.name not in self._functions:  # a tool of the context has its own probe
            return run
        parents: Parents = [(observer, _call(observer.parent)) for observer in _observers]

        def run_observed() -> Any:
            done = Operation("tool", self.ctx.name, tool=call.name, call=call.id)
            done.content["arguments"] = call.arguments
            done.start(parents)
            try:
                found = run()
            except BaseException as error:
                done.finish(error)
                raise
            if isawaitable(found):
                done.detach()
                return _finish_later(done, found)
            done.content["result"] = found
            done.finish()
            return found

        return run_observed

    return runner


async def _finish_later(done: Operation, awaitable: Awaitable[Any]) -> Any:
    try:
        found = await awaitable
    except BaseException as error:
        done.finish(error)
        raise
    done.content["result"] = found
    done.finish()
    return found


def _model_call(turn: Any, *, attached: bool = True) -> Operation:
    provider = type(turn).__module__.rpartition(".")[2]
    done = Operation("model", turn.ctx.name, attached=attached, model=turn.model, provider=provider)
    done.content["view"] = turn._view
    return done


def _note_answer(done: Operation, answer: Any) -> Any:
    """Add the facts of a model's answer to an operation; return the answer."""
    done.content["answer"] = answer
    used = getattr(answer, "usage", None)
    with suppress(InvalidValue):  # an endpoint may send no usage
        tokens = read_usage(answer)
        output = getattr(used, "completion_tokens", None) or getattr(used, "output_tokens", None)
        done.facts |= {"input": tokens.billed, "cached": tokens.cached, "output": output}
    reasons = [choice.finish_reason for choice in getattr(answer, "choices", ())] or [
        getattr(answer, "stop_reason", None) or getattr(answer, "status", None)
    ]
    done.facts |= {
        "answered_by": getattr(answer, "model", None),
        "answer_id": getattr(answer, "id", None),
        "reasons": [reason for reason in reasons if isinstance(reason, str)],
    }
    return answer


def _run(original: Function) -> Function:
    def run(self: Any, ask: Any) -> Any:
        def ask_observed(request: Any) -> Any:
            with _operation(_model_call(self)) as done:
                return _note_answer(done, ask(request))

        return original(self, ask_observed)

    return run


def _arun(original: Function) -> Function:
    async def arun(self: Any, ask: Any) -> Any:
        async def ask_observed(request: Any) -> Any:
            with _operation(_model_call(self)) as done:
                return _note_answer(done, await ask(request))

        return await original(self, ask_observed)

    return arun


class _ObservedStream(AbstractContextManager[Any]):
    """A stream of a client, plain or async. The operation ends with it; `take` adds the answer."""

    def __init__(self, turn: Any, stream: Any) -> None:
        self._stream = stream
        self._operation = turn.__dict__["_observed"] = _model_call(turn, attached=False)
        self._operation.start()

    def __enter__(self) -> Any:
        return self._stream.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        self._operation.finish(error)
        return self._stream.__exit__(kind, error, trace)

    async def __aenter__(self) -> Any:
        return await self._stream.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> Any:
        self._operation.finish(error)
        return await self._stream.__aexit__(kind, error, trace)


def _stream(original: Function) -> Function:
    def stream(self: Any, open_stream: Any) -> Any:
        return original(self, lambda request: _ObservedStream(self, open_stream(request)))

    return stream


def _astream(original: Function) -> Function:
    def astream(self: Any, open_stream: Any) -> Any:
        async def open_observed(request: Any) -> Any:
            return _ObservedStream(self, await open_stream(request))

        return original(self, open_observed)

    return astream


def _take(original: Function) -> Function:
    def take(self: Any, answer: Any) -> None:
        observed = self.__dict__.get("_observed")
        if answer is not None and observed is not None:
            _note_answer(observed, answer)
        original(self, answer)

    return take


def _report_usage(original: Function) -> Function:
    def report_usage(self: Any, *given: Any, **options: Any) -> Any:
        with _operation(Operation("usage", _context(self._engine))) as done:
            usage = original(self, *given, **options)
            done.facts |= {"model": usage.model, "billed": usage.billed, "cached": usage.cached}
            return usage

    return report_usage


def _context(engine: Engine) -> str:
    return engine.state.context


_PROBES: tuple[tuple[str, str, Callable[[Function], Function]], ...] = (
    ("quire.view.renderer", "Renderer.render", _render),
    ("quire.view.renderer", "Renderer._fold", _fold),
    ("quire.view.handle", "ViewHandle.report_usage", _report_usage),
    ("quire.core.engine", "Engine._write", _write),
    ("quire.search.find", "find", _find),
    ("quire.agent.agent", "find", _find),
    ("quire.agent.tools", "Tools.answer", _answer),
    ("quire.conversation.turn", "acquire", _acquire),
    ("quire.conversation.turn", "run_turn", _run_turn),
    ("quire.adapters.turns", "Turn._runner", _runner),
    ("quire.adapters.turns", "Turn.run", _run),
    ("quire.adapters.turns", "Turn.arun", _arun),
    ("quire.adapters.turns", "Turn.stream", _stream),
    ("quire.adapters.turns", "Turn.astream", _astream),
    ("quire.adapters.turns", "Turn.take", _take),
)
"""The functions that are wrapped: their module, their name in it, and the wrapper."""
