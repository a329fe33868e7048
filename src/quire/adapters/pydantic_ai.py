"""pydantic-ai: a capability that shows the model a view, and a toolset. It needs the extra `pydantic-ai`.

Each part of a request is one message of quire; a response is one message.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple, Unpack
from weakref import WeakKeyDictionary

import msgspec

from quire.adapters.context_pool import AnyContext, ContextPool, SyncedContext, Where, context_of, requires_extra
from quire.adapters.sync_list import ListSync
from quire.agent.tools import Tools
from quire.aio.calls import CallQueue
from quire.context import Context, Options
from quire.errors import InvalidOperation
from quire.model.messages import Message, Part
from quire.providers.pydantic_ai import read, read_parts
from quire.providers.rewrites import drop_thinking
from quire.view.options import RenderOptions
from quire.view.view import View

with requires_extra("pydantic-ai"):
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler
    from pydantic_ai.messages import (
        InstructionPart,
        ModelMessage,
        ModelRequest,
        ModelRequestPart,
        ModelResponse,
        ModelResponsePart,
        SystemPromptPart,
        TextContent,
        TextPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
    from pydantic_core import SchemaValidator, core_schema

__all__ = ["QuireCapability", "QuireToolset"]

SpokenPart = tuple[ModelRequestPart, Message]


def parse(item: ModelMessage) -> list[Message]:
    """Return the messages of a request or a response. Parts that only the framework reads have none."""
    return read(item, "message")


def fingerprint(item: ModelMessage, parsed: Sequence[Message]) -> bytes:
    """Return bytes that are equal for items with the same content, also after a restart.

    `parsed` is what `parse` returns for the item. Signatures are left out: items that older versions stored have none.
    """
    return msgspec.json.encode([(m.role, _unsigned(m.content), m.tool_calls, m.tool_call_id) for m in parsed])


def _unsigned(content: str | list[Part] | None) -> str | list[Part] | None:
    if not isinstance(content, list):
        return content
    return [{"type": "thinking", "text": part["text"]} if part["type"] == "thinking" else part for part in content]


def spoken_parts(request: ModelRequest) -> list[SpokenPart]:
    """Return the parts of a request that have a message, with their messages."""
    found = zip(request.parts, read_parts(request, "message"), strict=True)
    return [(part, message) for part, message in found if message is not None]


# A view for the framework


def to_model_messages(sync: ListSync[ModelMessage], view: View, items: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return a view without its leading system messages. Whole messages are the framework's own objects."""
    names: dict[str, str] = {}
    spoken: dict[int, list[SpokenPart]] = {}  # by the identity of the request
    pieces: list[ModelResponse | tuple[ModelRequest | None, ModelRequestPart]] = []
    leading = True
    for message, place in sync.find_origins(view):
        leading = leading and message.role == "system" and place is None
        if leading:
            continue
        names |= {call.id: call.name for call in message.tool_calls}
        source = place or sync.find_source(message)
        item = None if source is None else items[source.item]
        if message.role == "assistant":
            whole = place is not None and isinstance(item, ModelResponse)
            pieces.append(item if whole and isinstance(item, ModelResponse) else _rebuild_response(message, item))
        elif source is not None and isinstance(item, ModelRequest):
            if id(item) not in spoken:
                spoken[id(item)] = spoken_parts(item)
            part = spoken[id(item)][source.part][0]
            pieces.append((item, part if place is not None else _clip_part(message, part, names)))
        else:
            pieces.append((None, _make_part(message, names)))
    return list(_group_requests(pieces, spoken))


def _group_requests(
    pieces: Sequence[ModelResponse | tuple[ModelRequest | None, ModelRequestPart]],
    spoken: Mapping[int, list[SpokenPart]],
) -> Iterator[ModelMessage]:
    """Yield the parts as requests: the parts of one request together, or that request itself if it is whole."""
    parts: list[ModelRequestPart] = []
    of: ModelRequest | None = None
    for piece in pieces:
        owner = piece[0] if isinstance(piece, tuple) else None
        if parts and (not isinstance(piece, tuple) or owner is not of):
            yield _request(of, parts, spoken)
            parts = []
        if isinstance(piece, tuple):
            of, parts = owner, [*parts, piece[1]]
        else:
            yield piece
    if parts:
        yield _request(of, parts, spoken)


def _request(
    of: ModelRequest | None, parts: list[ModelRequestPart], spoken: Mapping[int, list[SpokenPart]]
) -> ModelRequest:
    if of is None:
        return ModelRequest(parts=parts)
    own = [part for part, _ in spoken[id(of)]]
    is_whole = len(own) == len(parts) and all(one is other for one, other in zip(own, parts, strict=True))
    return of if is_whole else replace(of, parts=parts)


def _rebuild_response(message: Message, original: object) -> ModelResponse:
    """Return a response that is shown without its thinking, with clipped text, or that has no original."""
    if isinstance(original, ModelResponse) and _is_without_thinking(message, parse(original)[0]):
        return replace(original, parts=[_without_id(p) for p in original.parts if not isinstance(p, ThinkingPart)])
    parts: list[ModelResponsePart] = [TextPart(message.text)] if message.text.strip() else []
    parts += [ToolCallPart(call.name, call.arguments, call.id) for call in message.tool_calls]
    return replace(original, parts=parts) if isinstance(original, ModelResponse) else ModelResponse(parts=parts)


def _is_without_thinking(message: Message, original: Message) -> bool:
    return any(
        (message.content, message.tool_calls) == (bare.content, bare.tool_calls) for bare in drop_thinking([original])
    )


def _without_id(part: ModelResponsePart) -> ModelResponsePart:
    """Return a part without its item id: OpenAI refuses an id if the reasoning that came with it is missing."""
    return replace(part, id=None) if isinstance(part, TextPart | ToolCallPart) and part.id else part


def _clip_part(message: Message, part: ModelRequestPart, names: dict[str, str]) -> ModelRequestPart:
    if not isinstance(part, UserPromptPart) or isinstance(part.content, str):
        return replace(part, content=message.text) if isinstance(part, UserPromptPart) else _make_part(message, names)
    rest = [piece for piece in part.content if not isinstance(piece, str | TextContent)]
    return replace(part, content=[message.text, *rest])


def _make_part(message: Message, names: dict[str, str]) -> ModelRequestPart:
    match message.role:
        case "system":
            return SystemPromptPart(message.text)
        case "tool":
            call_id = message.tool_call_id or ""
            return ToolReturnPart(tool_name=names.get(call_id, "unknown"), content=message.text, tool_call_id=call_id)
        case _:
            return UserPromptPart(message.text)


class _Anything:
    """Accepts any arguments: the tools themselves check them and answer the model with an error text."""

    def validate_json(self, input: str | bytes | bytearray, **options: Any) -> Any:  # noqa: A002 - the framework's word
        """Return the JSON value of a text; the text itself if it is not JSON, or null, which the framework rejects."""
        with suppress(ValueError):
            if (value := _ANY.validate_json(input, **options)) is not None:
                return value
        return input if isinstance(input, str) else bytes(input).decode(errors="replace")

    def validate_python(self, input: Any, **_: Any) -> Any:  # noqa: A002
        """Return the input."""
        return input


_ANY = SchemaValidator(core_schema.any_schema())
_ANYTHING = _Anything()


class QuireToolset(AbstractToolset[Any]):
    """The tools of a context's agent: all, or those named."""

    def __init__(
        self,
        ctx: AnyContext | Callable[[RunContext[Any]], Awaitable[SyncedContext[Any]]],
        *,
        tools: bool | Sequence[str] = True,
        id: str | None = "quire",
    ) -> None:
        self._where = context_of(ctx) if isinstance(ctx, AnyContext) else ctx
        self._chosen = tools
        self._id = id
        self._queue = CallQueue()

    @property
    def id(self) -> str | None:
        """The name of the toolset."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools of the run's context."""
        tools, queue = await self._tools(ctx)
        found: dict[str, ToolsetTool[Any]] = {}
        for schema in await queue.run(tools.openai):
            function = schema["function"]
            definition = ToolDefinition(
                name=function["name"],
                description=function["description"],
                parameters_json_schema=function["parameters"],
            )
            found[definition.name] = ToolsetTool(
                toolset=self, tool_def=definition, max_retries=1, args_validator=_ANYTHING
            )
        return found

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> str:
        """Run a tool. It always returns an answer, whatever the model sent."""
        tools, queue = await self._tools(ctx)
        return await queue.run(tools.call, name, tool_args)

    async def _tools(self, ctx: RunContext[Any]) -> tuple[Tools, CallQueue]:
        if isinstance(self._where, Context):
            context, queue = self._where, self._queue
        else:
            synced = await self._where(ctx)
            context, queue = synced.ctx, synced.queue
        return context.tools if isinstance(self._chosen, bool) else context.tools.only(*self._chosen), queue


_UNDER_WAY = 256


class _SentRequest(NamedTuple):
    """A request that waits for its answer: the history, and the view of it that was sent to the model."""

    history: list[ModelMessage]
    view: View
    tools: int
    whole: bool


class QuireCapability(AbstractCapability[Any]):
    """Sends the model a view within the budget; the run keeps the whole message history.

    If `where` is a path, a URL or a storage, every conversation has its own context, named by the run's
    `conversation_id`. If `where` is an open context, the agent serves one conversation. `tools` selects quire's tools
    for the model: all, none, or those named. `view` are the options of `render`; the others are those of `quire.open`.
    """

    def __init__(
        self,
        where: Where,
        *,
        tools: bool | Sequence[str] = True,
        view: RenderOptions | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._pool = ContextPool[ModelMessage](where, parse, fingerprint, **options)
        self._view = view
        self._tools = tools
        self._under_way: OrderedDict[str, _SentRequest] = OrderedDict()
        self._firsts: WeakKeyDictionary[SyncedContext[ModelMessage], tuple[ModelRequest, ModelRequest]]
        self._firsts = WeakKeyDictionary()

    def context(self, conversation_id: str = "") -> Context:
        """Return the context of a conversation; without an id the given context."""
        return self._pool.get(conversation_id).ctx

    def close(self) -> None:
        """Release the storage, if it was opened here. Everything is stored even without this call."""
        self._pool.close()

    def get_toolset(self) -> AbstractToolset[Any] | None:
        """Return quire's tools for the context of the run."""
        return QuireToolset(self._here, tools=self._tools) if self._tools else None

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Return None: a spec cannot describe a context."""
        return None

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Run the request in a turn of the context."""
        turn = (await self._here(ctx)).turn()
        async with turn:
            with turn.inside():
                return await handler(request_context)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send the view instead of the whole history."""
        synced = await self._here(ctx)
        parameters = request_context.model_request_parameters
        instructions = InstructionPart.join(parameters.instruction_parts or []) or ""
        tools = self._pool.count_tools([*parameters.function_tools, *parameters.output_tools], _to_schema)
        history = list(request_context.messages)
        whole = any(message.run_id != ctx.run_id for message in history)  # it has messages of earlier runs
        view, messages = await synced.queue.run(self._render, synced, history, instructions, whole)
        self._under_way[ctx.run_id or ""] = _SentRequest(history, view, tools, whole)
        while len(self._under_way) > _UNDER_WAY:  # those of runs that failed
            self._under_way.popitem(last=False)
        return replace(request_context, messages=messages)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Add the answer and report its usage."""
        sent = self._under_way.pop(ctx.run_id or "", None)
        if sent is not None and response.state == "complete":
            synced = await self._here(ctx)
            await synced.queue.run(self._take, synced, sent, response)
        return response

    async def _here(self, ctx: RunContext[Any]) -> SyncedContext[ModelMessage]:
        if self._pool.context is not None:
            return await self._pool.get_async("")
        if ctx.conversation_id is None:
            raise InvalidOperation("This run has no conversation_id: give one to run(), or an open context to quire.")
        return await self._pool.get_async(ctx.conversation_id)

    def _render(
        self, synced: SyncedContext[ModelMessage], history: list[ModelMessage], instructions: str, whole: bool
    ) -> tuple[View, list[ModelMessage]]:
        prompts, items = self._without_prompts(synced, history)
        prompt = "\n\n".join([*(part.content for part in prompts), *([instructions] if instructions else [])])
        with synced.lock:
            view = synced.render(prompt, items, self._view, whole=whole)
            messages = to_model_messages(synced.sync, view, items)
        leading = takewhile(lambda message: message.role == "system", view.messages)
        added = [SystemPromptPart(message.text) for message in leading if message.text != prompt]
        if prompts or added:
            messages.insert(0, ModelRequest(parts=[*prompts, *added]))
        if not (messages and isinstance(messages[-1], ModelRequest)):  # the last request has no message of its own
            messages.append(items[-1])
        return view, messages

    def _take(self, synced: SyncedContext[ModelMessage], sent: _SentRequest, response: ModelResponse) -> None:
        with synced.lock:
            items = [*self._without_prompts(synced, sent.history)[1], response]
            synced.sync.update(items, sent.view, whole=sent.whole)
            used, cached = response.usage.input_tokens, response.usage.cache_read_tokens
            synced.report_usage(sent.view, response.model_name, used, cached, sent.tools)

    def _without_prompts(
        self, synced: SyncedContext[ModelMessage], history: list[ModelMessage]
    ) -> tuple[list[SystemPromptPart], list[ModelMessage]]:
        """Return the prompts at the start of a history, which may change in every run, and the history without them."""
        first = history[0]
        prompts = list(_prompts(first)) if isinstance(first, ModelRequest) else []
        if not prompts or not isinstance(first, ModelRequest):
            return [], history
        known, rest = self._firsts.get(synced, (None, first))
        if known is not first or len(rest.parts) + len(prompts) != len(first.parts):
            rest = replace(first, parts=first.parts[len(prompts) :])
            self._firsts[synced] = (first, rest)
        return prompts, [rest, *history[1:]]


def _to_schema(tool: ToolDefinition) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}


def _prompts(request: ModelRequest) -> Iterator[SystemPromptPart]:
    for part in request.parts:
        if not isinstance(part, SystemPromptPart):
            return
        yield part
