"""A turn with a model: ask, add the answer, run the calls in it, and ask again until it answers without one.

The loop itself stands in the adapters, three lines each:

    while turn.settle():
        turn.take(client.chat.completions.create(**turn.request(), **more))
    return turn.answer

What it has done is in the context after every step, so a turn that was broken off is gone on with: `settle` begins
with the calls that still wait for a result.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from inspect import isawaitable, iscoroutine, signature
from typing import Any, Generic, TypeVar

from msgspec import Struct

from quire.adapters.context_pool import patiently
from quire.agent.tools import Tools
from quire.aio import CallQueue
from quire.context import Context
from quire.errors import InvalidOperation, InvalidValue, QuotaExceeded, short_repr
from quire.model.messages import ToolCall
from quire.providers.tool_schemas import count_tools
from quire.view.options import RenderOptions
from quire.view.view import View

Answer = TypeVar("Answer")
Functions = Mapping[str, Callable[..., Any]]
Values = dict[str, Any]
_REFUSED = {
    "messages": "what is sent is the view: add what is said to the context, as with ctx.user(…).",
    "input": "what is sent is the view: add what is said to the context, as with ctx.user(…).",
    "system": "the prompt is the context's: ctx.system(…).",
    "stream": "the functions whose names have stream in them give what arrives as it arrives: stream(…), astream(…).",
}
"""What a turn says itself in its requests, and what to use instead."""


class TurnOptions(Struct, frozen=True, kw_only=True):
    """How a turn goes: which of the context's own tools the model gets, options of `render`, and the most requests.

    `tools` are all of them (True), none (False), or some: `ctx.tools.only("find")`.
    """

    tools: bool | Tools = True
    render: Mapping[str, Any] = {}
    requests: int = 100

    def __post_init__(self) -> None:
        RenderOptions(**self.render)  # a misspelt one is told now, not in the middle of a turn


class Turn(Generic[Answer]):
    """One turn of a context with a model. `answer` is what the model said last.

    `tools` are the schemas of the developer's tools, `functions` what runs when the model calls one: it gets the
    arguments by name and returns text, or what can be written as JSON. An error in it goes to the caller; the turn
    can be gone on with. A call that nobody here can run ends the turn: give its result, and go on. `more` is what else
    goes into every request.
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
                raise InvalidValue(f"{name}= is not for a turn: {_REFUSED[name]}")
        chosen = options or TurnOptions()
        beside = more.get("instructions")
        own = chosen.tools
        self.ctx = ctx
        self.model = model
        self.lane = CallQueue()
        self.answer: Answer | None = None
        self.own: Tools | None = own if isinstance(own, Tools) else ctx.tools if own else None
        self._functions = dict(functions or {})
        self.schemas = self._all_schemas(list(tools))
        self._options = chosen
        self._tools_tokens = count_tools(self.schemas, ctx.pages.counter) if self.schemas else 0
        self._beside = ctx.pages.counter.count(beside) if isinstance(beside, str) else 0
        self._view: View | None = None
        self._requests = 0
        self._is_answered = True
        self._said_nothing = False

    # What a provider's adapter says

    def own_schemas(self, tools: Tools, beside: list[Any]) -> list[Values]:
        """The schemas of the context's tools and of the developer's, in the provider's shape."""
        raise NotImplementedError

    def written(self, view: View) -> Values:
        """The view as the parameters of a request."""
        raise NotImplementedError

    def is_empty(self, answer: Answer) -> bool:
        """Whether there is nothing in an answer that could be added."""
        raise NotImplementedError

    def refusal(self, error: Exception) -> Any:
        """What a model is told of an error that a function raised for it; None if the error is the caller's."""
        return None

    # The steps of a turn

    def settle(self) -> bool:
        """Run the calls that wait for a result; whether the model is to be asked now.

        Raises `QuotaExceeded` if it was asked too often, `InvalidOperation` if it cannot be asked at all.
        """
        for call in self.ctx.pending_calls():
            run = self._runner(call)
            if run is not None:
                self._give(call, self._outcome(partial(_at_once, run, call)))
        return self._goes_on()

    async def asettle(self) -> bool:
        """`settle`, where functions may be async: what they begin in a thread is awaited here."""
        for call in await self.lane.run(self.ctx.pending_calls):
            run = self._runner(call)
            if run is None:
                continue
            content, failed = await self.lane.run(self._outcome, run)
            if isawaitable(content):
                content, failed = await self._awaited(content)
            await self.lane.run(self._give, call, (content, failed))
        return await self.lane.run(self._goes_on)

    def request(self) -> Values:
        """The parameters of the next request: the model, the view and the tools."""
        given = dict(self._options.render)
        reserve = given.pop("reserve", 0) + self._tools_tokens + self._beside
        self._view = self.ctx.render(**{"model": self.model, **given}, reserve=reserve)
        self._requests += 1
        self._is_answered = False
        tools = {"tools": self.schemas} if self.schemas else {}
        return {"model": self.model, **self.written(self._view), **tools}

    def take(self, answer: Answer) -> None:
        """Add an answer to the context, and learn from what it cost."""
        self._said_nothing = self.is_empty(answer)
        if not self._said_nothing:
            patiently(self.ctx, lambda: self.ctx.add(answer))
        self.answer, self._is_answered = answer, True
        with suppress(InvalidValue):  # an endpoint may not count at all
            self.ctx.report_usage(answer, tools=self._tools_tokens + self._beside, view=self._view)

    def check_answered(self) -> None:
        """Raises `InvalidOperation` if what was asked last has no answer: its stream broke off."""
        if not self._is_answered:
            raise InvalidOperation("The stream ended before the answer did; nothing of it was added. Ask again.")

    def answered(self) -> Answer:
        """The last answer."""
        if self.answer is None:
            raise InvalidOperation("The model has not answered yet.")
        return self.answer

    # Running calls

    def _goes_on(self) -> bool:
        waiting = self.ctx.pending_calls()
        if waiting and self.answer is None:
            calls = ", ".join(f"{call.id!r} ({call.name})" for call in waiting)
            raise InvalidOperation(f"The model waits for results of {calls}: give them with tool_result().")
        has_news = not waiting and not self._said_nothing and self.ends_with_result()
        goes_on = self.answer is None or has_news  # a model that had nothing to say to a result has nothing now
        if goes_on and self._requests >= self._options.requests:
            raise QuotaExceeded(
                f"the model was asked {self._requests} times and still calls tools; TurnOptions(requests=…) allows more"
            )
        return goes_on

    def ends_with_result(self) -> bool:
        """Whether the last thing in the conversation is a result, which the model has not seen."""
        newest = self.ctx.conversation.newest(1)
        return bool(newest) and newest[0].role == "tool"

    def _runner(self, call: ToolCall) -> Callable[[], Any] | None:
        """What runs a call; None if nobody here can."""
        function = self._functions.get(call.name)
        if function is None:
            return partial(self.own.call, call) if self.own is not None and call.name in self.own else None
        try:
            arguments = {"input": call.arguments} if call.custom else json.loads(call.arguments or "{}")
            if not isinstance(arguments, dict):
                raise InvalidValue(f"arguments are {short_repr(arguments)}; an object is needed")
            signature(function).bind(**arguments)
        except (ValueError, TypeError, RecursionError) as error:
            return partial(_said, f"InvalidValue: {call.name}: {error}.")
        return partial(function, **arguments)

    def _outcome(self, run: Callable[[], Any]) -> tuple[Any, bool]:
        """What a call gave, and whether it failed."""
        try:
            return run(), False
        except Exception as error:
            return self._told(error), True

    async def _awaited(self, found: Awaitable[Any]) -> tuple[Any, bool]:
        try:
            return await found, False
        except Exception as error:
            return self._told(error), True

    def _told(self, error: Exception) -> Any:
        told = self.refusal(error)
        if told is None:
            raise error
        return told

    def _give(self, call: ToolCall, outcome: tuple[Any, bool]) -> None:
        content, failed = outcome
        if not isinstance(content, str) and not _is_parts(content):
            content = json.dumps(content, ensure_ascii=False, default=str)
        patiently(self.ctx, lambda: self.give(call.id, content, failed))

    def give(self, call_id: str, content: Any, failed: bool) -> None:
        """Add the result of a call."""
        self.ctx.tool_result(call_id, content)

    def _all_schemas(self, tools: list[Any]) -> list[Values]:
        return tools if self.own is None else self.own_schemas(self.own, tools)


def _said(text: str) -> str:
    return text


def _at_once(run: Callable[[], Any], call: ToolCall) -> Any:
    """What a call gives where nothing can be awaited. Raises `InvalidOperation` for a function that is async."""
    found = run()
    if not isawaitable(found):
        return found
    if iscoroutine(found):
        found.close()
    raise InvalidOperation(f"The function of {call.name!r} is async; an async client can run it, with acomplete().")


def _is_parts(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content)
