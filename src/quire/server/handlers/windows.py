"""Handlers for windows and the agent's tools."""

from typing import Any, Literal

from quire.context import Context
from quire.server import responses
from quire.server.context_pool import OpenContext
from quire.server.requests import ActionArguments
from quire.server.responses import fill
from quire.windows.app import Window


def list_windows(opened: OpenContext, *, obsolete: bool = False) -> responses.Windows:
    """List the windows; with `obsolete`, closed ones too."""
    context = opened.context
    lines = [_window_line(context, window) for window in context.windows.list(include_obsolete=obsolete)]
    return responses.Windows(lines, list(context.windows.apps()), context.seq)


def act(opened: OpenContext, window: str, action: str, *, body: ActionArguments) -> responses.ActionResult:
    """Run an action of a window."""
    result = opened.context.windows.act(window, action, body or {})
    return responses.ActionResult(opened.context.seq, result)


def list_tools(
    opened: OpenContext, *, format: Literal["openai", "anthropic", "responses", "mcp"] = "openai"
) -> responses.ToolList:
    """List the agent's tools in a provider's format."""
    tools: list[Any] = getattr(opened.context.tools, format)()
    return responses.ToolList(format, tools)


def call_tool(opened: OpenContext, *, name: str, arguments: dict[str, Any] | str | None = None) -> responses.ToolResult:
    """Call a tool as the agent. The arguments are an object, or JSON text as a model wrote it."""
    result = opened.context.tools.call(name, {} if arguments is None else arguments)
    return responses.ToolResult(result, opened.context.seq)


def _window_line(context: Context, window: Window) -> responses.WindowLine:
    content = window.content
    items = [] if isinstance(content, str) else [responses.WindowItem(*item) for item in content]
    text = content if isinstance(content, str) else "\n".join(item.text for item in items)
    return fill(
        responses.WindowLine,
        window,
        title=window.description,
        content=text,
        items=items,
        tokens=context.pages.counter.count(text),
        actions=[fill(responses.ActionLine, action, parameters=action.schema()) for action in window.actions],
    )
