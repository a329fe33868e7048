"""A turn with a model: send the view, add the answer, run its tool calls, and ask again until it answers.

The context holds everything after each step. So an interrupted turn can be resumed: it starts with the calls that still
wait for a result. `Turn` has the loop in four forms: plain or async, with whole answers or with streams.

A plain function is a tool: its schema comes from its type hints and its docstring.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, cleandoc, getdoc, isawaitable, iscoroutine, signature
from threading import Lock
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from quire import aio
from quire.adapters.context_pool import AnyContext, TurnScope, context_of
from quire.agent.tools import Tools
from quire.aio.calls import CallQueue
from quire.conversation.turn import Turn as ContextTurn
from quire.conversation.turn import check_wait
from quire.errors import Hint, InvalidOperation, InvalidValue, QuotaExceeded, check_names, short_repr
from quire.model.messages import Message, ToolCall
from quire.model.pages import OptionsMeta
from quire.providers.tool_schemas import check_tools, count_tools, list_tools
from quire.system.rules import check_bool, check_whole_number
from quire.view.options import RenderFields, RenderOptions, check_options
from quire.view.view import View

_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?):?\s*$|^:(\w+)\b", re.MULTILINE
)
_GOOGLE = re.compile(r"^[ \t]+\*{0,2}(\w+)[ \t]*(?:\([^)\n]*\))?:[ \t]*(.+(?:\n[ \t]{6,}\S.*)*)", re.MULTILINE)
_SPHINX = re.compile(r"^:param[ \t]+(?:[^:\n]*[ \t])?(\w+):[ \t]*(.+(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_TYPES = "use JSON types, Literal, an Enum, a dataclass, a TypedDict or a msgspec.Struct"


class FunctionTool(Struct, frozen=True):
    """A function that a model can call: its name, its schema, and the type that checks its arguments."""

    name: str
    schema: dict[str, Any]
    function: Callable[..., Any]
    arguments: type[Struct]

    def bind(self, given: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the call with these arguments, converted to the annotated types. Raises `ValueError`."""
        values = msgspec.convert(given, self.arguments, strict=False)
        named = {name: getattr(values, name) for name in self.arguments.__struct_fields__}
        return partial(self.function, **{name: value for name, value in named.items() if value is not UNSET})


def is_function(tool: object) -> bool:
    """Return whether a tool is a function to call, and not a schema."""
    return callable(tool) and not isinstance(tool, Mapping | type)


def function_tool(function: Callable[..., Any]) -> FunctionTool:
    """Return a function as a tool. Raise `InvalidValue` if it has no name, or a parameter that JSON cannot fill.

    The description is the docstring without its sections. The text of a parameter is a string in `Annotated`, or its
    line in a section `Args:` or `:param`.
    """
    inner = function.func if isinstance(function, partial) else function
    name = getattr(inner, "__name__", "")
    if not name.isidentifier():
        raise InvalidValue(f"cannot contain {short_repr(function)}: it has no name; use `def`.", argument="tools")
    hints = _hints(inner, name)
    description, texts = _read_docstring(getdoc(inner) if hasattr(inner, "__name__") else None)
    fields = []
    for parameter in signature(function).parameters.values():
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY):
            raise InvalidValue(f"cannot contain {name}: {str(parameter)!r} cannot be given by name.", argument="tools")
        kind = _described(hints.get(parameter.name, Any), texts.get(parameter.name, ""))
        _check_type(name, parameter.name, hints.get(parameter.name, Any), kind)
        is_needed = parameter.default is Parameter.empty
        fields.append((parameter.name, kind) if is_needed else (parameter.name, kind | UnsetType, UNSET))
    arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    schema = {"name": name, "parameters": _object_schema(arguments)}
    if description:
        schema["description"] = description
    return FunctionTool(name, {"type": "function", "function": schema}, function, arguments)


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:  # an annotation in quotes can raise anything
        written = getattr(function, "__annotations__", {})
        known = getattr(function, "__globals__", {})
        bad = next(
            (key for key, value in written.items() if isinstance(value, str) and not _evaluates(value, known)), ""
        )
        place = f"parameter {bad!r} has the annotation {written[bad]!r}" if bad else "its type hints cannot be read"
        raise InvalidValue(f"cannot contain {name}: {place} ({error}).", argument="tools") from error


def _evaluates(annotation: str, names: dict[str, Any]) -> bool:
    try:
        get_type_hints(type("_", (), {"__annotations__": {"value": annotation}}), names)
    except Exception:
        return False
    return True


def _described(kind: Any, text: str) -> Any:
    """Return a type with the text for the model: a string in `Annotated`, or `text`."""
    noted = [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, str)]
    text = noted[0] if noted else text
    return Annotated[kind, Meta(description=text)] if text else kind


def _check_type(function: str, parameter: str, written: Any, kind: Any) -> None:
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError, RecursionError, NameError) as error:
        reason = str(error).strip().splitlines()[-1].rstrip(".")
        place = f"parameter {parameter!r} has the annotation {short_repr(written)}"
        raise InvalidValue(f"cannot contain {function}: {place}: {reason}; {_TYPES}.", argument="tools") from error


def _object_schema(arguments: type[Struct]) -> dict[str, Any]:
    (top,), parts = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema = parts.pop(top["$ref"].removeprefix("#/$defs/"))
    for part in (schema, *parts.values()):
        part.pop("title", None)
    return {**schema, "$defs": parts} if parts else schema


def _read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the description in a docstring, and the text of each parameter."""
    text = cleandoc(text or "")
    found = {name: " ".join(about.split()) for name, about in (*_GOOGLE.findall(text), *_SPHINX.findall(text))}
    section = _SECTION.search(text)
    return text[: section.start() if section else None].strip(), found


Answer = TypeVar("Answer")
T = TypeVar("T")
Functions = Mapping[str, Callable[..., Any]]
Values = dict[str, Any]
OnError = Literal["raise", "tell"]
"""Who gets the error of a function: the caller, or the model as the result of its call."""
_REFUSED = {
    "messages": "the view is sent; add messages to the context, for example with ctx.user(…).",
    "input": "the view is sent; add messages to the context, for example with ctx.user(…).",
    "system": "the context has the prompt: ctx.system(…).",
    "stream": "use a function with stream in its name: stream(…), astream(…).",
}
"""Parameters that the turn sets itself, and what to use instead."""


def _check_parameters(create: Callable[..., Any], given: Iterable[str], own: Sequence[str]) -> None:
    """Raise `UnknownOption` for a parameter that neither the turn nor the client's method `create` has.

    If the method takes any parameter, only a misspelt option of the turn is refused.
    """
    try:
        parameters = signature(create).parameters
    except (TypeError, ValueError):  # a method without a signature
        return
    known = [*own, *(name for name in parameters if name not in (*_REFUSED, *own))]
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        given = (name for name in given if get_close_matches(name, own, cutoff=0.8))
    check_names(given, known)


class TurnOptions(Struct, frozen=True, kw_only=True, metaclass=OptionsMeta):
    """Options of a turn: the context's tools for the model, the options of `render`, and the limit of requests.

    `tools` is True for all tools, False for none, or a selection: `ctx.tools.only("find")`. `wait` are the seconds to
    wait for another worker that is in a turn of the context.
    """

    tools: bool | Tools | aio.Tools = True
    render: RenderFields = {}
    requests: int = 100
    wait: float = 30.0

    def __post_init__(self) -> None:
        """Raise `InvalidValue` for a wrong option here, not in the middle of a turn."""
        if not isinstance(self.tools, bool | Tools | aio.Tools):
            raise InvalidValue(
                f"is {short_repr(self.tools)}; True, False or ctx.tools.only(…) is needed.", argument="tools"
            )
        if not isinstance(self.render, Mapping):
            raise InvalidValue(
                f"is {short_repr(self.render)}; a dict of options of render is needed.", argument="render"
            )
        check_options(RenderOptions(**self.render))
        if check_whole_number(self.requests, "requests") == 0:
            raise InvalidValue("is 0; a whole number from 1 is needed.", argument="requests")
        check_wait(self.wait)


class ToolRuns(NamedTuple):
    """How the calls of a model run: the developer's functions, who gets their errors, and whether in parallel."""

    functions: Functions | None
    on_error: OnError
    parallel: bool


class Turn(Generic[Answer]):
    """One turn of a context with a model. `answer` is the model's last answer.

    `tools` are the developer's tools: functions, or schemas that functions of `runs` serve by name. A function gets the
    arguments by name and returns text or a JSON value. A call without a function ends the turn: add its result and
    start another turn. `more` is added to every request, which goes to `create`, a method of the client.
    """

    own_options: ClassVar[tuple[str, ...]] = ("model", "tools", "functions", "on_error", "parallel", "options")

    def __init__(
        self,
        ctx: AnyContext,
        model: str,
        tools: Iterable[Any],
        runs: ToolRuns,
        options: TurnOptions | None,
        more: Mapping[str, Any],
        create: Callable[..., Any],
    ) -> None:
        for name in more:
            if name in _REFUSED:
                raise InvalidValue(f"cannot be set: {_REFUSED[name]}", argument=name)
        _check_parameters(create, more, self.own_options)
        if runs.on_error not in get_args(OnError):
            raise InvalidValue(f"is {short_repr(runs.on_error)}; use 'raise' or 'tell'.", argument="on_error")
        chosen = TurnOptions() if options is None else options
        if not isinstance(chosen, TurnOptions):
            raise InvalidValue(f"is {short_repr(options)}; TurnOptions(…) is needed.", argument="options")
        beside = more.get("instructions")
        listed = [function_tool(tool) if is_function(tool) else tool for tool in list_tools(tools)]
        self.ctx = context_of(ctx)
        self.model = model
        self.queue = ctx._calls if isinstance(ctx, aio.Context) else CallQueue()
        self.answer: Answer | None = None
        self.own: Tools | None = _own_tools(chosen.tools, self.ctx.tools)
        functions = [tool for tool in listed if isinstance(tool, FunctionTool)]
        self._functions: dict[str, FunctionTool | Callable[..., Any]] = {
            **{tool.name: tool for tool in functions},
            **(runs.functions or {}),
        }
        for name, times in Counter(tool.name for tool in functions).items():
            if times > 1:
                raise InvalidValue(f"contains {times} functions with the name {name!r}; rename one.", argument="tools")
        schemas = check_tools([tool.schema if isinstance(tool, FunctionTool) else tool for tool in listed])
        self.schemas = self.own_schemas(self.ctx.tools.only() if self.own is None else self.own, schemas)
        self._options = chosen
        self._tells_errors = runs.on_error == "tell"
        self._is_parallel = check_bool(runs.parallel, "parallel")
        self._tools_tokens = count_tools(self.schemas, self.ctx.pages.counter) if self.schemas else 0
        self._beside = self.ctx.pages.counter.count(beside) if isinstance(beside, str) else 0
        self._view: View | None = None
        self._requests = 0
        self._has_answer = True
        self._is_silent = self._is_stored = False
        self._adding = Lock()

    # Implemented for each provider

    def own_schemas(self, tools: Tools, beside: list[Any]) -> list[Values]:
        """Return the schemas of the context's tools and of the developer's, in the provider's shape."""
        raise NotImplementedError

    def format_view(self, view: View) -> Values:
        """Return the view as parameters of a request."""
        raise NotImplementedError

    def is_empty(self, answer: Answer) -> bool:
        """Return whether an answer holds nothing to add to the context."""
        raise NotImplementedError

    def error_content(self, error: Exception) -> Any:
        """Return the result for the model if the error is meant for the model; None if the caller gets the error."""
        return None

    def stored_answer(self, message: Message) -> Answer:
        """Return an answer that an earlier turn with the same key added, in the provider's form."""
        raise NotImplementedError

    def completed_answer(self, event: Any) -> Answer | None:
        """Return the answer that an event of a stream holds; None if the event does not complete it."""
        return None

    def streamed_answer(self, stream: Any, events: list[Any]) -> Answer | None:
        """Return the answer of a stream that was read to its end, unless one of its events held it."""
        return None

    # The loop

    def run(self, ask: Callable[[Values], Answer]) -> Answer:
        """Run the turn with a client's call; return the last answer."""
        self._drain()
        with self._begin(in_thread=True):
            self._resume()
            while self.settle():
                self.take(_check_client(ask(self.request()), is_async=False))
        assert self.answer is not None
        return self.answer

    async def arun(self, ask: Callable[[Values], Awaitable[Answer]]) -> Answer:
        """Run the turn with an async client's call; return the last answer."""
        async with self._begin():
            await self.queue.run(self._resume)
            while await self.asettle():
                answer = _check_client(ask(await self.queue.run(self.request)), is_async=True)
                await self.queue.run(self.take, await answer)
        assert self.answer is not None
        return self.answer

    def stream(self, open_stream: Callable[[Values], AbstractContextManager[Iterable[Any]]]) -> Iterator[Any]:
        """Run the turn with a client's streams; yield every event."""
        self._drain()
        with self._begin():
            self._resume()
            while self.settle():
                events: list[Any] = []
                with _check_client(open_stream(self.request()), is_async=False) as stream:
                    for event in stream:
                        events.append(event)
                        self.take(self.completed_answer(event))
                        yield event
                    self.take(self.streamed_answer(stream, events))
                self.check_answered()

    async def astream(
        self, open_stream: Callable[[Values], Awaitable[AbstractAsyncContextManager[AsyncIterable[Any]]]]
    ) -> AsyncIterator[Any]:
        """Run the turn with an async client's streams; yield every event."""
        async with self._begin():
            await self.queue.run(self._resume)
            while await self.asettle():
                events: list[Any] = []
                opened = await _check_client(open_stream(await self.queue.run(self.request)), is_async=True)
                async with _check_client(opened, is_async=True) as stream:
                    async for event in stream:
                        events.append(event)
                        if (answer := self.completed_answer(event)) is not None:
                            await self.queue.run(self.take, answer)
                        yield event
                    await self.queue.run(self.take, self.streamed_answer(stream, events))
                self.check_answered()

    # The steps of a turn

    def _begin(self, *, in_thread: bool = False) -> TurnScope:
        self._scope = TurnScope(self.ctx, self.queue, self._options.wait, in_thread=in_thread)
        return self._scope

    def _drain(self) -> None:
        """Wait for the calls of an async context that were requested before."""
        self.queue.submit(lambda: None).result()

    def _resume(self) -> None:
        """Continue after the messages of an earlier turn with the same key. If it has an answer, set `answer` to it."""
        turn = self.ctx.pages._engine.turn
        with self._scope.inside():
            last = turn.skip_reply() if isinstance(turn, ContextTurn) and turn.is_current else None
        if last is not None and last.role == "assistant" and not last.tool_calls:
            self.answer, self._is_stored = self.stored_answer(last), True

    def settle(self) -> bool:
        """Run the calls that wait for a result. Return whether the model must be asked next.

        Raise `QuotaExceeded` if there were too many requests, `InvalidOperation` if the model cannot be asked.
        """
        if self._is_stored:
            return False
        calls = self._runnable(self.ctx.pending_calls())
        if self._is_parallel and len(calls) > 1:
            with ThreadPoolExecutor(len(calls), thread_name_prefix="quire-tools") as pool:
                runs = [pool.submit(self._settle_call, call, run) for call, run in calls]
            for done in runs:
                done.result()
        else:
            for call, run in calls:
                self._settle_call(call, run)
        return self._must_ask()

    async def asettle(self) -> bool:
        """Run `settle` for async code: a function starts in a thread, and its awaitable is awaited here."""
        if self._is_stored:
            return False
        calls = self._runnable(await self.queue.run(self.ctx.pending_calls))
        if self._is_parallel and len(calls) > 1:
            tasks = (self._asettle_call(call, run) for call, run in calls)
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                if error is not None:
                    raise error
        else:
            for call, run in calls:
                await self._asettle_call(call, run)
        return await self.queue.run(self._must_ask)

    def request(self) -> Values:
        """Return the parameters of the next request: the model, the view and the tools."""
        given: RenderFields = {"model": self.model, "tools": self.schemas, **self._options.render}
        given["reserve"] = given.get("reserve", 0) + self._beside
        with self._scope.inside():
            self._view = self.ctx.render(**given)
        self._requests += 1
        self._has_answer = False
        tools = {"tools": self.schemas} if self.schemas else {}
        return {"model": self.model, **self.format_view(self._view), **tools}

    def take(self, answer: Answer | None) -> None:
        """Add an answer to the context and report its usage."""
        if answer is None:
            return
        self._is_silent = self.is_empty(answer)
        if not self._is_silent:
            with self._scope.inside():
                self.ctx.pages._engine.retry(lambda: self.ctx.add(answer, view=self._view))
        self.answer, self._has_answer = answer, True
        with suppress(InvalidValue), self._scope.inside():  # an endpoint may send no usage
            self.ctx.report_usage(answer, tools=self._tools_tokens + self._beside, view=self._view)

    def check_answered(self) -> None:
        """Raise `InvalidOperation` if the last request has no answer because its stream broke off."""
        if not self._has_answer:
            raise InvalidOperation("The stream ended before the answer was complete. Nothing was added. Ask again.")

    # Running calls

    def _must_ask(self) -> bool:
        waiting = self.ctx.pending_calls()
        if waiting and self.answer is None:
            calls = ", ".join(f"{call.id!r} ({call.name})" for call in waiting)
            raise InvalidOperation(
                f"The model waits for the results of {calls}.", Hint("tool_result", purpose="to add each of them")
            )
        has_news = not waiting and not self._is_silent and self.ends_with_result()
        asks = self.answer is None or has_news  # an empty answer to a result is the last one
        if asks and self._requests >= self._options.requests:
            raise QuotaExceeded(
                f"The model still calls tools after {self._requests} requests. TurnOptions(requests=…) sets the limit."
            )
        return asks

    def ends_with_result(self) -> bool:
        """Return whether the conversation ends with a result that the model has not seen."""
        newest = self.ctx.conversation.newest(1)
        return bool(newest) and newest[0].role == "tool"

    def _runnable(self, calls: Iterable[ToolCall]) -> list[tuple[ToolCall, Callable[[], Any]]]:
        """Return the calls that a function runs, each with its function."""
        return [(call, run) for call in calls if (run := self._runner(call)) is not None]

    def _runner(self, call: ToolCall) -> Callable[[], Any] | None:
        function = self._functions.get(call.name)
        if function is None:
            return partial(self.own.call, call) if self.own is not None and call.name in self.own else None
        try:
            arguments = {"input": call.arguments} if call.custom else json.loads(call.arguments or "{}")
            if not isinstance(arguments, dict):
                raise InvalidValue(f"is {short_repr(arguments)}; an object is needed", argument="arguments")
            if isinstance(function, FunctionTool):
                return function.bind(arguments)
            signature(function).bind(**arguments)
        except (ValueError, TypeError, RecursionError) as error:
            return partial(str, f"InvalidValue: {call.name}: {error}.")
        return partial(function, **arguments)

    def _settle_call(self, call: ToolCall, run: Callable[[], Any]) -> None:
        """Run a call and add its result. Raise `InvalidOperation` for an async function."""
        found = self._start_call(call, run)
        if found is None:
            return
        if iscoroutine(found):
            found.close()
        raise InvalidOperation(
            f"The function of {call.name!r} is async; only an async client can run it.", Hint("acomplete")
        )

    async def _asettle_call(self, call: ToolCall, run: Callable[[], Any]) -> None:
        """Run a call without blocking the event loop, and add its result. A plain function is not cancelled."""
        if call.name in self._functions:
            found = await asyncio.to_thread(self._start_call, call, run)
        else:
            found = await self.queue.run(self._start_call, call, run)
        if found is None:
            return
        try:
            with self._scope.inside():
                content, failed = await found, False
        except Exception as error:
            content, failed = self._error_result(error), True
        await self.queue.finish(partial(self._add_result, call, content, failed))

    def _start_call(self, call: ToolCall, run: Callable[[], Any]) -> Awaitable[Any] | None:
        """Run a call and add its result; return the awaitable of an async function instead."""
        try:
            with self._scope.inside():
                content, failed = run(), False
        except Exception as error:
            content, failed = self._error_result(error), True
        if not failed and isawaitable(content):
            return content
        self._add_result(call, content, failed)
        return None

    def _error_result(self, error: Exception) -> Any:
        """Return an error as a result for the model. Raise it if it is for the caller."""
        content = self.error_content(error)
        if content is not None:
            return content
        if self._tells_errors:
            return f"{type(error).__name__}: {error}".rstrip(": ")
        raise error

    def _add_result(self, call: ToolCall, content: Any, failed: bool) -> None:
        if not isinstance(content, str) and not _is_parts(content):
            try:
                plain = msgspec.to_builtins(content, enc_hook=_to_plain, str_keys=True)
                content = json.dumps(plain, ensure_ascii=False)
            except (TypeError, ValueError, RecursionError) as error:
                content = f"InvalidValue: The result of {call.name} cannot be written as JSON: {error}."
        with self._scope.inside(), self._adding:
            self.ctx.pages._engine.retry(lambda: self.add_result(call.id, content, failed))

    def add_result(self, call_id: str, content: Any, failed: bool) -> None:
        """Add the result of a call to the context."""
        self.ctx.tool_result(call_id, content)


def _check_client(found: T, *, is_async: bool) -> T:
    """Return what a call of the client returned. Raise `InvalidValue` if the client is of the other kind."""
    can_wait = isawaitable(found) or hasattr(found, "__aenter__")
    if can_wait if is_async else not can_wait or hasattr(found, "__enter__"):  # a traced stream has both forms
        return found
    if iscoroutine(found):
        found.close()
    kind, others = ("a synchronous", "complete, respond, stream") if is_async else ("an async", "acomplete, astream")
    raise InvalidValue(f"is {kind} client; use a function for such clients: {others}, ….", argument="client")


def _own_tools(chosen: bool | Tools | aio.Tools, whole: Tools) -> Tools | None:
    """Return the context's tools that a model gets."""
    if isinstance(chosen, aio.Tools):
        found = chosen._get()
        assert isinstance(found, Tools)
        return found
    return chosen if isinstance(chosen, Tools) else whole if chosen else None


def _to_plain(value: Any) -> Any:
    """Return a value that has no JSON form as one that has: a pydantic model as a dict, others as text."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def _is_parts(content: Any) -> bool:
    is_list = isinstance(content, list) and bool(content)
    return is_list and all(isinstance(part, dict) and "type" in part for part in content)
