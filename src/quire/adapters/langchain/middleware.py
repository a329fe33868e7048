"""A middleware that sends the model a view of the conversation, and quire's tools for LangChain."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, Unpack

from quire.adapters.context_pool import ContextPool, SyncedContext, Where, requires_extra
from quire.adapters.langchain.messages import fingerprint, parse, to_langchain, with_ids
from quire.adapters.turn_scope import AnyContext, context_of
from quire.agent.tools import Tools
from quire.aio.calls import CallQueue
from quire.context import Context
from quire.errors import InvalidOperation
from quire.open_context import Options
from quire.open_context import open as open_context
from quire.storage.memory import MemoryStorage
from quire.view.options import RenderOptions
from quire.view.view import View

with requires_extra("langchain"):
    from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
    from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.config import get_config


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
    """Return the view for a request: the system message, and the messages as LangChain's objects where whole."""
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
