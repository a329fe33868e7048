"""The protocol: each MCP request is one call of a `ServedContext`. Calls run one at a time in a worker thread."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from typing import Any, ParamSpec, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from quire.aio.calls import CallQueue
from quire.errors import InvalidOperation, InvalidValue, NoSuchPage, QuireError
from quire.mcp_server.resources import TEXT, ServedContext
from quire.mcp_server.subscriptions import ChangeDetector, Subscriptions

P = ParamSpec("P")
T = TypeVar("T")
RequestContext = ServerRequestContext[Any, Any]
_PROMPT = "preamble"
_NOT_FOUND = -32002
"""The older protocol's code for a resource that does not exist; the newer one uses INVALID_PARAMS."""


class ContextServer(Server[None]):
    """A server for one context. Over any transport it announces that its lists may change."""

    def __init__(self, served: ServedContext, poll: float) -> None:
        self._served = served
        self._calls = CallQueue()
        self.subscriptions = Subscriptions(self._calls, ChangeDetector(served), poll)
        super().__init__(
            "quire",
            version=version("quire"),
            title=f"quire: {served.context.name}",
            instructions=served.instructions(),
            lifespan=self._lifespan,
            get_tool_input_schema=lambda _: None,  # no tool takes arguments from headers
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._on_initialized)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Return the initialization options for a client of the older protocol."""
        changing = notification_options or NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(changing, experimental_capabilities, extensions)

    @asynccontextmanager
    async def _lifespan(self, _: Server[None]) -> AsyncIterator[None]:
        watching = asyncio.create_task(self.subscriptions.watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _on_initialized(self, ctx: RequestContext, _: types.NotificationParams) -> None:
        self.subscriptions.add_client(ctx.session)

    # Tools

    async def _list_tools(self, ctx: RequestContext, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = await self._call(ctx, self._served.tools)
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in tools])

    async def _call_tool(self, ctx: RequestContext, params: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await self._call(ctx, self._served.call, params.name, params.arguments)
        if answer is None:
            raise MCPError(types.INVALID_PARAMS, f"No tool {params.name[:100]!r}; tools/list lists the tools.")
        self.subscriptions.nudge()
        text = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[text], is_error=answer.failed)

    # Resources

    async def _list_resources(
        self, ctx: RequestContext, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        with _mcp_errors(ctx):
            try:
                resources, following = await self._calls.run(
                    self._served.list_resources, params.cursor if params else None
                )
            except NoSuchPage:
                raise MCPError(types.INVALID_PARAMS, "Unknown cursor; start without one.") from None
        return types.ListResourcesResult(resources=resources, next_cursor=following)

    async def _list_templates(
        self, _: RequestContext, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = f"{self._served.uris.base}{{page}}"
        page = types.ResourceTemplate(
            name="page",
            title="A page",
            uri_template=template,
            description="The text of a page, or the entries of a folder",
            mime_type=TEXT,
        )
        part = types.ResourceTemplate(
            name="part",
            title="A part of a page",
            uri_template=f"{template}{{?start,length}}",
            description="A range of characters of a page, or of entries of a folder",
            mime_type=TEXT,
        )
        return types.ListResourceTemplatesResult(resource_templates=[page, part])

    async def _read(self, ctx: RequestContext, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        text = await self._read_at(ctx, params.uri)
        contents = types.TextResourceContents(uri=params.uri, mime_type=TEXT, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _read_at(self, ctx: RequestContext, uri: str) -> str:
        with _mcp_errors(ctx, uri=uri):
            return await self._calls.run(self._served.read, uri)

    async def _subscribe(self, ctx: RequestContext, params: types.SubscribeRequestParams) -> types.EmptyResult:
        await self._read_at(ctx, params.uri)  # a client may subscribe only to what it can read
        with _mcp_errors(ctx):
            await self.subscriptions.subscribe(ctx.session, params.uri)
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: RequestContext, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.subscriptions.unsubscribe(ctx.session, params.uri)
        return types.EmptyResult()

    async def _listen(
        self, ctx: RequestContext, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        with _mcp_errors(ctx):
            return await self.subscriptions.listen(ctx, params)

    # The prompt

    async def _list_prompts(
        self, _: RequestContext, __: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        prompt = types.Prompt(
            name=_PROMPT,
            title="How to read this context",
            description="Explains the view and the tools to a model",
        )
        return types.ListPromptsResult(prompts=[prompt])

    async def _get_prompt(self, ctx: RequestContext, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name != _PROMPT:
            raise MCPError(types.INVALID_PARAMS, f"No prompt {params.name[:100]!r}; the only prompt is {_PROMPT!r}.")
        text = types.TextContent(type="text", text=await self._call(ctx, self._served.preamble))
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    async def _call(self, ctx: RequestContext, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call in the worker thread. Raise `MCPError`."""
        with _mcp_errors(ctx):
            return await self._calls.run(call, *args, **kwargs)


@contextmanager
def _mcp_errors(ctx: RequestContext, **data: str) -> Iterator[None]:
    """Turn a library error into an `MCPError` with the error's stable code as data."""
    try:
        yield
    except QuireError as error:
        if isinstance(error, LookupError):  # every NoSuch… error
            code = types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else _NOT_FOUND
        else:
            is_client_error = isinstance(error, InvalidValue | InvalidOperation)
            code = types.INVALID_PARAMS if is_client_error else types.INTERNAL_ERROR
        raise MCPError(code, str(error), {"code": error.code, **data}) from error
