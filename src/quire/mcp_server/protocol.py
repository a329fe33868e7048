"""The server of the Model Context Protocol: every request is a call of the book, made in its lane."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, ParamSpec, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from quire.aio import CallQueue
from quire.errors import InvalidOperation, InvalidValue, NoSuchPage, QuireError
from quire.mcp_server.book import Book, Listed
from quire.mcp_server.changes import Changes
from quire.mcp_server.listeners import Listeners

P = ParamSpec("P")
T = TypeVar("T")
Asked = ServerRequestContext[Any, Any]
_TEXT = "text/plain"
_PROMPT = "preamble"
_NOT_FOUND = -32002
"""A resource that is not there, as the older protocol has it; the newer one says that the parameters are wrong."""


class BookServer(Server[None]):
    """A server for one book. It says of its lists that they may change, over any transport."""

    def __init__(self, book: Book, poll: float) -> None:
        self._book = book
        self._lane = CallQueue()
        self.listeners = Listeners(self._lane, Changes(book), poll)
        super().__init__(
            "quire",
            version=version("quire"),
            title=f"quire: {book.context.name}",
            instructions=book.instructions(),
            lifespan=self._living,
            get_tool_input_schema=lambda _: None,  # no argument of ours travels in a header
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
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._initialized)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """What a client of the older protocol is greeted with."""
        changing = notification_options or NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(changing, experimental_capabilities, extensions)

    @asynccontextmanager
    async def _living(self, _: Server[None]) -> AsyncIterator[None]:
        watching = asyncio.create_task(self.listeners.watch())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _initialized(self, ctx: Asked, _: types.NotificationParams) -> None:
        self.listeners.connected(ctx.session)

    # Tools

    async def _list_tools(self, ctx: Asked, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = await self._asked(ctx, self._book.tools)
        return types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in tools])

    async def _call_tool(self, ctx: Asked, params: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await self._asked(ctx, self._book.call, params.name, params.arguments)
        if answer is None:
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {params.name[:100]!r}; tools/list lists them.")
        self.listeners.nudge()
        text = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[text], is_error=answer.failed)

    # Resources

    async def _list_resources(
        self, ctx: Asked, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        cursor = params.cursor if params else None
        try:
            listed, more = await self._lane.run(self._book.listed, cursor)
        except NoSuchPage:
            raise MCPError(types.INVALID_PARAMS, "This cursor is none of ours; begin without one.") from None
        except QuireError as error:
            raise _failure(ctx, error) from error
        return types.ListResourcesResult(resources=[_resource(one) for one in listed], next_cursor=more)

    async def _list_templates(
        self, _: Asked, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        addresses = self._book.addresses
        page = types.ResourceTemplate(
            name="page",
            title="A page",
            uri_template=addresses.page_template,
            description="The text of a page, or the entries of a folder",
            mime_type=_TEXT,
        )
        part = types.ResourceTemplate(
            name="part",
            title="A part of a page",
            uri_template=addresses.range_template,
            description="So many characters of a page (in a folder: entries) from a place on",
            mime_type=_TEXT,
        )
        return types.ListResourceTemplatesResult(resource_templates=[page, part])

    async def _read(self, ctx: Asked, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        text = await self._read_at(ctx, params.uri)
        contents = types.TextResourceContents(uri=params.uri, mime_type=_TEXT, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _read_at(self, ctx: Asked, uri: str) -> str:
        try:
            return await self._lane.run(self._book.read, uri)
        except QuireError as error:
            raise _failure(ctx, error, uri=uri) from error

    async def _subscribe(self, ctx: Asked, params: types.SubscribeRequestParams) -> types.EmptyResult:
        await self._read_at(ctx, params.uri)  # what cannot be read is not heard of
        try:
            await self.listeners.subscribe(ctx.session, params.uri)
        except QuireError as error:
            raise _failure(ctx, error) from error
        return types.EmptyResult()

    async def _unsubscribe(self, ctx: Asked, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.listeners.unsubscribe(ctx.session, params.uri)
        return types.EmptyResult()

    async def _listen(
        self, ctx: Asked, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        try:
            return await self.listeners.listen(ctx, params)
        except QuireError as error:
            raise _failure(ctx, error) from error

    # The prompt

    async def _list_prompts(self, _: Asked, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        prompt = types.Prompt(
            name=_PROMPT,
            title="How to read this context",
            description="Tells a model how to read the view and what it can do with the tools",
        )
        return types.ListPromptsResult(prompts=[prompt])

    async def _get_prompt(self, ctx: Asked, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name != _PROMPT:
            raise MCPError(types.INVALID_PARAMS, f"There is no prompt {params.name[:100]!r}; {_PROMPT!r} is the one.")
        text = types.TextContent(type="text", text=await self._asked(ctx, self._book.preamble))
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    async def _asked(self, ctx: Asked, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a call of the book gives, made when its turn comes. Raises `MCPError`."""
        try:
            return await self._lane.run(call, *args, **kwargs)
        except QuireError as error:
            raise _failure(ctx, error) from error


def _resource(listed: Listed) -> types.Resource:
    modified = types.Annotations(last_modified=listed.modified.isoformat()) if listed.modified else None
    return types.Resource(
        uri=listed.uri,
        name=listed.name,
        description=listed.about or None,
        mime_type=_TEXT,
        annotations=modified,
    )


def _failure(ctx: Asked, error: QuireError, **data: str) -> MCPError:
    """An error as the protocol has it, with its stable code."""
    if isinstance(error, LookupError):  # every NoSuch…
        code = types.INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else _NOT_FOUND
    elif isinstance(error, InvalidValue | InvalidOperation):
        code = types.INVALID_PARAMS
    else:
        code = types.INTERNAL_ERROR
    return MCPError(code, str(error), {"code": error.code, **data})
