"""LangChain: a chat message history, a middleware for agents, and tools. It needs the extra `langchain`."""

import json
import warnings
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any, NamedTuple, Self, Unpack
from weakref import finalize

import msgspec
from msgspec.structs import replace

from quire.adapters.context_pool import (
    AnyContext,
    ContextPool,
    SyncedContext,
    Where,
    context_of,
    requires_extra,
    to_context,
)
from quire.adapters.stored_list import read_newest, replace_stored
from quire.agent.tools import Tools
from quire.aio.calls import CallQueue
from quire.context import Context, Options
from quire.context import open as open_context
from quire.errors import InvalidOperation, InvalidValue, short_repr
from quire.model.messages import Message
from quire.providers import format_messages
from quire.providers.langchain import read
from quire.storage.memory import MemoryStorage
from quire.view.options import RenderOptions
from quire.view.view import View

with requires_extra("langchain"):
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.load import dumpd, load
    from langchain_core.load.serializable import Serializable
    from langchain_core.messages import (
        AIMessage,
        AnyMessage,
        BaseMessage,
        SystemMessage,
        convert_to_messages,
        messages_from_dict,
    )
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config

__all__ = ["QuireChatMessageHistory", "QuireMiddleware", "tools_of"]


def parse(message: BaseMessage) -> list[Message]:
    """Return the message as a list of one, in which every call has an id; an empty list for a `RemoveMessage`."""
    return [
        replace(
            found,
            tool_calls=tuple(replace(call, id=call.id or f"call_{n}") for n, call in enumerate(found.tool_calls)),
        )
        for found in read(message, "message")
    ]


def fingerprint(message: BaseMessage, parsed: Sequence[Message]) -> bytes:
    """Return bytes that are equal for messages with the same content. Ids are left out: a graph sets them later.

    `parsed` is what `parse` returns for the message.
    """
    role, answered = (parsed[0].role, parsed[0].tool_call_id) if parsed else ("user", None)
    calls = [message.tool_calls, message.invalid_tool_calls] if isinstance(message, AIMessage) else []
    return msgspec.json.encode([role, message.name, message.content, calls, answered], enc_hook=repr)


def to_langchain(message: Message, original: BaseMessage | None = None) -> BaseMessage | None:
    """Return a message of a view for LangChain: its original with the shown content, or a new one. None if empty."""
    written = format_messages([message], "openai")
    if not written:
        return None
    [fresh] = convert_to_messages(written)
    if original is None or [call.id for call in message.tool_calls] != [
        call.id for found in parse(original) for call in found.tool_calls
    ]:
        return fresh
    return original.model_copy(update={"content": fresh.content})


def with_ids(message: BaseMessage) -> BaseMessage:
    """Return a message for a model, in which every call has the id that its result has."""
    if not isinstance(message, AIMessage) or all(
        call["id"] for call in [*message.tool_calls, *message.invalid_tool_calls]
    ):
        return message
    calls = [{**call, "id": call["id"] or f"call_{n}"} for n, call in enumerate(message.tool_calls)]
    broken = [call for call in message.invalid_tool_calls if call["id"]]
    [parsed] = parse(message)
    content = message.content if len(broken) == len(message.invalid_tool_calls) else parsed.text
    return message.model_copy(update={"content": content, "tool_calls": calls, "invalid_tool_calls": broken})


_META = "langchain"
_TAG = "$quire"


def to_stored(message: BaseMessage) -> list[Message]:
    """Return the message with its original as JSON in `meta`. Raise `InvalidValue` for an unknown type."""
    fields = {name: getattr(message, name) for name in (*type(message).model_fields, *(message.model_extra or ()))}
    if isinstance(message.content, str):
        del fields["content"]  # the message stores it
    data = {name: _to_json(value, f"{type(message).__name__}.{name}") for name, value in fields.items()}
    written = json.dumps({"type": message.type, "data": data}, ensure_ascii=False)
    return [replace(parsed, meta={_META: written}) for parsed in parse(message)]


def from_stored(message: Message) -> BaseMessage | None:
    """Return the message as it was added, with the content that a view shows. None if that is empty."""
    written = message.meta.get(_META)
    if not isinstance(written, str):
        return to_langchain(message)
    stored = json.loads(written)
    data = {name: _read(value) for name, value in stored["data"].items()}
    data.setdefault("content", message.content if isinstance(message.content, str) else "")
    [found] = messages_from_dict([{"type": stored["type"], "data": data}])
    [parsed] = parse(found)
    return found if parsed.content == message.content else to_langchain(message, found)


def _to_json(value: Any, place: str) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if type(value) is list:
        return [_to_json(inner, f"{place}[{n}]") for n, inner in enumerate(value)]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and _TAG not in value:
            return {key: _to_json(inner, f"{place}.{key}") for key, inner in value.items()}
        pairs = [[_to_json(key, place), _to_json(inner, f"{place}[{key!r}]")] for key, inner in value.items()]
        return {_TAG: "dict", "value": pairs}
    if type(value) is tuple:
        return {_TAG: "tuple", "value": [_to_json(inner, f"{place}[{n}]") for n, inner in enumerate(value)]}
    if isinstance(value, bytes):
        return {_TAG: "bytes", "value": b64encode(value).decode()}
    if isinstance(value, datetime):
        return {_TAG: "datetime", "value": value.isoformat()}
    if isinstance(value, Serializable) and value.is_lc_serializable():
        return {_TAG: "core", "value": dumpd(value)}
    raise InvalidValue(
        f"{place} is {short_repr(value)}; JSON values, tuples, bytes, dates and LangChain objects can be stored."
    )


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if _TAG in value:
        return _READ[value[_TAG]](value["value"])
    return {key: _read(inner) for key, inner in value.items()}


def _core(value: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load(value, allowed_objects="core")


_READ: Mapping[str, Callable[[Any], Any]] = {
    "dict": lambda pairs: {_read(key): _read(value) for key, value in pairs},
    "tuple": lambda values: tuple(map(_read, values)),
    "bytes": b64decode,
    "datetime": datetime.fromisoformat,
    "core": _core,
}


class QuireChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session, stored without loss in the context of that name.

    `where` is a path, a URL, a storage or an open context. With `bounded`, `messages` returns what fits the context's
    `budget`: the newest messages whole, the others folded. `view` always returns that.
    """

    def __init__(self, session_id: str, where: Where, *, bounded: bool = False, **options: Unpack[Options]) -> None:
        super().__init__()
        self.session_id = session_id
        self.ctx = to_context(where, session_id, **options)
        self._bounded = bounded
        self._queue = CallQueue()
        self._closed = None if isinstance(where, AnyContext) else finalize(self, self.ctx.close)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """Every message in the order of arrival; with `bounded` what fits the budget."""
        return self.view() if self._bounded else self.whole()

    def whole(self) -> list[BaseMessage]:
        """Return every message in the order of arrival."""
        self.ctx.refresh()
        arrived = sorted(read_newest(self.ctx), key=lambda message: message.index)
        return [found for message in arrived if (found := from_stored(message)) is not None]

    def view(self) -> list[BaseMessage]:
        """Return what fits the context's budget: whole messages as they were added, older ones folded."""
        self.ctx.refresh()
        shown = self.ctx.render().messages
        return [with_ids(found) for message in shown if (found := from_stored(message)) is not None]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages in one commit. Messages that no model may see are stored and not shown."""
        fresh = [one for message in messages for one in to_stored(message)]
        self.ctx.pages._engine.retry(lambda: replace_stored(self.ctx, "add", [], fresh))

    def clear(self) -> None:
        """Remove every message. They stay in the store until `cleanup`."""
        self.ctx.refresh()
        self.ctx.pages._engine.retry(lambda: replace_stored(self.ctx, "clear", read_newest(self.ctx), []))

    async def aget_messages(self) -> list[BaseMessage]:
        """Return `messages` without blocking the event loop."""
        return await self._queue.run(lambda: self.messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Run `add_messages` without blocking the event loop."""
        await self._queue.run(self.add_messages, messages)

    async def aclear(self) -> None:
        """Run `clear` without blocking the event loop."""
        await self._queue.run(self.clear)

    def close(self) -> None:
        """Release the storage, if it was opened here. Everything is stored even without this call."""
        if self._closed is not None:
            self._closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SentRequest(NamedTuple):
    """A request: what the model is sent, the list behind it, and the view of that list."""

    request: ModelRequest[Any]
    messages: list[BaseMessage]
    view: View
    whole: bool


class QuireMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Sends the model a view within the budget; the agent's state keeps the whole list of messages.

    If `where` is a path, a URL or a storage, every thread has its own context, named by its `thread_id` or by what
    `name` returns for the run's config. If `where` is an open context, the agent serves one conversation. `tools`
    selects quire's tools for the model: all, none, or those named. `view` are the options of `render`; the others are
    those of `quire.open`.
    """

    def __init__(
        self,
        where: Where,
        *,
        name: Callable[[RunnableConfig], str] | None = None,
        tools: bool | Sequence[str] = True,
        view: RenderOptions | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._pool = ContextPool[BaseMessage](where, parse, fingerprint, **options)
        self._name = name or _thread
        self._view = view
        self.tools = [make_tool(schema, self._tools, self._queued_tools) for schema in self._schemas(tools)]

    def context(self, name: str = "") -> Context:
        """Return the context of a thread; without a name the given context."""
        return self._pool.get(name).ctx

    def close(self) -> None:
        """Release the storage, if it was opened here. Everything is stored even without this call."""
        self._pool.close()

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the view instead of the whole list, and add the answer, in a turn of the context."""
        synced = self._pool.get(self._key())
        with synced.turn(in_thread=True):
            sent = self._make_request(synced, request, _has_checkpoints())
            response = handler(sent.request)
            self._take(synced, sent, response)
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Send the view instead of the whole list, and add the answer."""
        synced = await self._pool.get_async(self._key())
        turn = synced.turn()
        async with turn:
            with turn.inside():
                sent = await synced.queue.run(self._make_request, synced, request, _has_checkpoints())
                response = await handler(sent.request)
                await synced.queue.run(self._take, synced, sent, response)
        return response

    def _key(self) -> str:
        """Return the name of this run's context."""
        return "" if self._pool.context is not None else self._name(get_config())

    def _tools(self) -> Tools:
        return self._pool.get(self._key()).ctx.tools

    async def _queued_tools(self) -> tuple[Tools, CallQueue]:
        synced = await self._pool.get_async(self._key())
        return synced.ctx.tools, synced.queue

    def _schemas(self, chosen: bool | Sequence[str]) -> list[dict[str, Any]]:
        ctx = self._pool.context or open_context(MemoryStorage())  # every context has the same tools
        tools = ctx.tools if isinstance(chosen, bool) else ctx.tools.only(*chosen)
        return tools.openai() if chosen else []

    def _make_request(
        self, synced: SyncedContext[BaseMessage], request: ModelRequest[Any], whole: bool
    ) -> _SentRequest:
        prompts = list(takewhile(lambda message: isinstance(message, SystemMessage), request.messages))
        messages: list[BaseMessage] = [*request.messages[len(prompts) :]]
        if request.system_message is not None:
            prompts.insert(0, request.system_message)
        prompt = "\n\n".join(message.text for message in prompts)
        with synced.lock:
            view = synced.render(prompt, messages, self._view, whole=whole)
            system, shown = _to_request_messages(synced, view, messages, prompts, prompt)
        return _SentRequest(request.override(system_message=system, messages=shown), messages, view, whole)

    def _take(self, synced: SyncedContext[BaseMessage], sent: _SentRequest, response: ModelResponse[Any]) -> None:
        with synced.lock:
            synced.sync.update([*sent.messages, *response.result], sent.view, whole=sent.whole)
            for message in response.result:
                if isinstance(message, AIMessage) and (usage := message.usage_metadata):
                    cached = (usage.get("input_token_details") or {}).get("cache_read") or 0
                    model = message.response_metadata.get("model_name") or message.response_metadata.get("model")
                    tools = self._pool.count_tools(sent.request.tools, _to_schema)
                    synced.report_usage(sent.view, model, usage["input_tokens"], cached, tools)


def _has_checkpoints() -> bool:
    """Return whether the graph keeps its list between invocations. A graph inside another one may begin anew."""
    try:
        values = get_config().get("configurable", {})
    except RuntimeError:  # outside a graph
        return False
    return values.get("__pregel_checkpointer") is not None and "|" not in str(values.get("checkpoint_ns"))


def _to_schema(tool: Any) -> dict[str, Any]:
    return tool if isinstance(tool, dict) else convert_to_openai_tool(tool)


def _thread(config: RunnableConfig) -> str:
    thread = config.get("configurable", {}).get("thread_id")
    if thread is None:
        raise InvalidOperation(
            'This run names no thread. QuireMiddleware needs {"configurable": {"thread_id": …}} in the config, or an'
            " open context instead of a store."
        )
    return str(thread)


def _to_request_messages(
    synced: SyncedContext[BaseMessage],
    view: View,
    messages: Sequence[BaseMessage],
    prompts: Sequence[BaseMessage],
    prompt: str,
) -> tuple[SystemMessage | None, list[AnyMessage]]:
    """Return the view for a request: the system message, and the messages; whole ones are LangChain's own objects."""
    system: list[str | dict[Any, Any]] = []
    shown: list[Any] = []
    for message, place in synced.sync.find_origins(view):
        if message.role == "system" and not shown and place is None:
            system += _blocks(prompts) if message.text == prompt else [message.text]
        elif place is not None:
            shown.append(with_ids(messages[place.item]))
        else:
            source = synced.sync.find_source(message)
            fresh = to_langchain(message, None if source is None else messages[source.item])
            shown += [] if fresh is None else [fresh]
    if not system:
        return None, shown
    texts = [block for block in system if isinstance(block, str)]
    if len(texts) == len(system):
        return SystemMessage(content="\n\n".join(texts)), shown
    return SystemMessage(content=[_block(block) for block in system]), shown


def _blocks(prompts: Sequence[BaseMessage]) -> list[str | dict[Any, Any]]:
    return [
        block
        for message in prompts
        for block in ([message.content] if isinstance(message.content, str) else message.content)
    ]


def _block(block: str | dict[Any, Any]) -> str | dict[Any, Any]:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def tools_of(ctx: AnyContext, tools: Tools | None = None) -> list[BaseTool]:
    """Return the tools of a context's agent, or the given ones (`ctx.tools.only(…)`), for LangChain."""
    chosen, queue = context_of(ctx).tools if tools is None else tools, CallQueue()

    async def in_queue() -> tuple[Tools, CallQueue]:
        return chosen, queue

    return [make_tool(schema, lambda: chosen, in_queue) for schema in chosen.openai()]


def make_tool(
    schema: dict[str, Any], found: Callable[[], Tools], in_queue: Callable[[], Awaitable[tuple[Tools, CallQueue]]]
) -> BaseTool:
    """Return a tool with this schema. Each call gets the tools from `found`, or from `in_queue` in async code."""
    function = schema["function"]
    name: str = function["name"]

    def run(**arguments: Any) -> str:
        return found().call(name, arguments)

    async def arun(**arguments: Any) -> str:
        tools, queue = await in_queue()
        return await queue.run(tools.call, name, arguments)

    return StructuredTool(
        name=name, description=function["description"], args_schema=function["parameters"], func=run, coroutine=arun
    )
