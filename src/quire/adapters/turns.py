"""A turn with a model: send the view, add the answer, run its tool calls, and ask again until it answers.

The context holds everything after each step. So an interrupted turn can be resumed: it starts with the calls that still
wait for a result. `Turn` has the loop in four forms: plain or async, with whole answers or with streams.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial
from inspect import isawaitable, iscoroutine, signature
from typing import Any, Generic, TypeVar

from msgspec import Struct

from quire.agent.tools import Tools
from quire.aio.calls import CallQueue
from quire.context import Context
from quire.errors import Hint, InvalidOperation, InvalidValue, QuotaExceeded, short_repr
from quire.model.messages import ToolCall
from quire.providers.tool_schemas import count_tools
from quire.view.options import RenderOptions
from quire.view.view import View

Answer = TypeVar("Answer")
Functions = Mapping[str, Callable[..., Any]]
Values = dict[str, Any]
_REFUSED = {
    "messages": "the view is sent; add messages to the context, for example with ctx.user(…).",
    "input": "the view is sent; add messages to the context, for example with ctx.user(…).",
    "system": "the context has the prompt: ctx.system(…).",
    "stream": "use a function with stream in its name: stream(…), astream(…).",
}
"""Parameters that the turn sets itself, and what to use instead."""


class TurnOptions(Struct, frozen=True, kw_only=True):
    """Options of a turn: the context's tools for the model, the options of `render`, and the limit of requests.

    `tools` is True for all tools, False for none, or a selection: `ctx.tools.only("find")`.
    """

    tools: bool | Tools = True
    render: Mapping[str, Any] = {}
    requests: int = 100

    def __post_init__(self) -> None:
        RenderOptions(**self.render)  # a misspelt option is an error here, not in the middle of a turn


class Turn(Generic[Answer]):
    """One turn of a context with a model. `answer` is the model's last answer.

    `tools` are the schemas of the developer's tools. `functions` run them by name: a function gets the arguments by
    name and returns text or a JSON value. Its errors go to the caller; the turn can be resumed. A call without a
    function ends the turn: add its result and start another turn. `more` is added to every request.
    """

    def __init__(
        self,
        ctx: Context,
        model: str,
        tools: Iterable[Any] = (),
        functions: Functions | None = None,
        options: TurnOptions | None = None,
        more: Mapping[str, Any] = {},
    ) -> None:
        for name in more:
            if name in _REFUSED:
                raise InvalidValue(f"cannot be set: {_REFUSED[name]}", argument=name)
        chosen = options or TurnOptions()
        beside = more.get("instructions")
        own = chosen.tools
        self.ctx = ctx
        self.model = model
        self.queue = CallQueue()
        self.answer: Answer | None = None
        self.own: Tools | None = own if isinstance(own, Tools) else ctx.tools if own else None
        self._functions = dict(functions or {})
        self.schemas = self.own_schemas(ctx.tools.only() if self.own is None else self.own, list(tools))
        self._options = chosen
        self._tools_tokens = count_tools(self.schemas, ctx.pages.counter) if self.schemas else 0
        self._beside = ctx.pages.counter.count(beside) if isinstance(beside, str) else 0
        self._view: View | None = None
        self._requests = 0
        self._has_answer = True
        self._is_silent = False

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
        """Return the result for a model if a function raised an error for it; None if the caller gets the error."""
        return None

    def completed_answer(self, event: Any) -> Answer | None:
        """Return the answer that an event of a stream holds; None if the event does not complete it."""
        return None

    def streamed_answer(self, stream: Any, events: list[Any]) -> Answer | None:
        """Return the answer of a stream that was read to its end, unless one of its events held it."""
        return None

    # The loop

    def run(self, ask: Callable[[Values], Answer]) -> Answer:
        """Run the turn with a client's call; return the last answer."""
        while self.settle():
            self.take(ask(self.request()))
        assert self.answer is not None
        return self.answer

    async def arun(self, ask: Callable[[Values], Awaitable[Answer]]) -> Answer:
        """Run the turn with an async client's call; return the last answer."""
        while await self.asettle():
            await self.queue.run(self.take, await ask(await self.queue.run(self.request)))
        assert self.answer is not None
        return self.answer

    def stream(self, open_stream: Callable[[Values], AbstractContextManager[Iterable[Any]]]) -> Iterator[Any]:
        """Run the turn with a client's streams; yield every event."""
        while self.settle():
            events: list[Any] = []
            with open_stream(self.request()) as stream:
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
        while await self.asettle():
            events: list[Any] = []
            async with await open_stream(await self.queue.run(self.request)) as stream:
                async for event in stream:
                    events.append(event)
                    if (answer := self.completed_answer(event)) is not None:
                        await self.queue.run(self.take, answer)
                    yield event
                await self.queue.run(self.take, self.streamed_answer(stream, events))
            self.check_answered()

    # The steps of a turn

    def settle(self) -> bool:
        """Run the calls that wait for a result. Return whether the model must be asked next.

        Raise `QuotaExceeded` if there were too many requests, `InvalidOperation` if the model cannot be asked.
        """
        for call in self.ctx.pending_calls():
            run = self._runner(call)
            if run is None:
                continue
            try:
                content, failed = _run_sync(run, call), False
            except Exception as error:
                content, failed = self._error_result(error), True
            self._add_result(call, content, failed)
        return self._must_ask()

    async def asettle(self) -> bool:
        """Run `settle` for async code: a function starts in a thread, and its awaitable is awaited here."""
        for call in await self.queue.run(self.ctx.pending_calls):
            run = self._runner(call)
            if run is None:
                continue
            try:
                content, failed = await self.queue.run(run), False
                if isawaitable(content):
                    content = await content
            except Exception as error:
                content, failed = self._error_result(error), True
            await self.queue.run(self._add_result, call, content, failed)
        return await self.queue.run(self._must_ask)

    def request(self) -> Values:
        """Return the parameters of the next request: the model, the view and the tools."""
        given = dict(self._options.render)
        reserve = given.pop("reserve", 0) + self._beside
        self._view = self.ctx.render(**{"model": self.model, "tools": self.schemas, **given}, reserve=reserve)
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
            self.ctx.pages._engine.retry(lambda: self.ctx.add(answer, view=self._view))
        self.answer, self._has_answer = answer, True
        with suppress(InvalidValue):  # an endpoint may send no usage
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

    def _runner(self, call: ToolCall) -> Callable[[], Any] | None:
        """Return the function that runs a call; None if there is none."""
        function = self._functions.get(call.name)
        if function is None:
            return partial(self.own.call, call) if self.own is not None and call.name in self.own else None
        try:
            arguments = {"input": call.arguments} if call.custom else json.loads(call.arguments or "{}")
            if not isinstance(arguments, dict):
                raise InvalidValue(f"is {short_repr(arguments)}; an object is needed", argument="arguments")
            signature(function).bind(**arguments)
        except (ValueError, TypeError, RecursionError) as error:
            return partial(str, f"InvalidValue: {call.name}: {error}.")
        return partial(function, **arguments)

    def _error_result(self, error: Exception) -> Any:
        content = self.error_content(error)
        if content is None:
            raise error
        return content

    def _add_result(self, call: ToolCall, content: Any, failed: bool) -> None:
        if not isinstance(content, str) and not _is_parts(content):
            try:
                content = json.dumps(content, ensure_ascii=False, default=str)
            except (TypeError, ValueError, RecursionError) as error:
                content = f"InvalidValue: The result of {call.name} cannot be written as JSON: {error}."
        self.ctx.pages._engine.retry(lambda: self.add_result(call.id, content, failed))

    def add_result(self, call_id: str, content: Any, failed: bool) -> None:
        """Add the result of a call to the context."""
        self.ctx.tool_result(call_id, content)


def _run_sync(run: Callable[[], Any], call: ToolCall) -> Any:
    """Return the result of a call in synchronous code. Raise `InvalidOperation` for an async function."""
    found = run()
    if not isawaitable(found):
        return found
    if iscoroutine(found):
        found.close()
    raise InvalidOperation(
        f"The function of {call.name!r} is async; only an async client can run it.", Hint("acomplete")
    )


def _is_parts(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content)
