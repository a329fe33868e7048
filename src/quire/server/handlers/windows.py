"""Windows and tools: what an agent could do here."""

from typing import Any

from quire.context import Context
from quire.server import asked, told
from quire.server.desk import Asked, Desk
from quire.windows.actions import Action
from quire.windows.app import Window


def list_windows(desk: Desk, request: Asked) -> told.Windows:
    """The windows as they are now."""
    query: asked.WindowsQuery = request.query
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        windows = context.windows.list(include_obsolete=query.obsolete)
        return told.Windows(
            windows=[_window(context, window) for window in windows],
            apps=list(context.windows.apps()),
            seq=context.seq,
        )


def act(desk: Desk, request: Asked) -> told.Acted:
    """Do something in a window."""
    with desk.shelf.use(request.path["c"]) as opened:
        result = opened.context.windows.act(request.path["w"], request.path["action"], request.body or {})
        return told.Acted(seq=opened.context.seq, result=result)


def list_tools(desk: Desk, request: Asked) -> told.ToolList:
    """The tools of the agent, in a provider's form."""
    query: asked.ToolsQuery = request.query
    with desk.shelf.use(request.path["c"]) as opened:
        tools: list[Any] = getattr(opened.context.tools, query.format)()
        return told.ToolList(format=query.format, tools=tools)


def call_tool(desk: Desk, request: Asked) -> told.Called:
    """Run a tool as the agent."""
    body: asked.ToolCalling = request.body
    with desk.shelf.use(request.path["c"]) as opened:
        result = opened.context.tools.call(body.name, {} if body.arguments is None else body.arguments)
        return told.Called(result=result, seq=opened.context.seq)


def _window(context: Context, window: Window) -> told.WindowLine:
    content = window.content
    items = [] if isinstance(content, str) else [told.WindowItem(id=one, text=text) for one, text in content]
    text = content if isinstance(content, str) else "\n".join(item.text for item in items)
    return told.WindowLine(
        id=window.id,
        app=window.app,
        title=window.description,
        page=window.page,
        content=text,
        items=items,
        error=window.error,
        summary=window.summary,
        tokens=context.pages.counter.count(text),
        pinned=window.pinned,
        important=window.important,
        obsolete=window.obsolete,
        actions=[_action(action) for action in window.actions],
    )


def _action(action: Action) -> told.ActionLine:
    return told.ActionLine(
        name=action.name,
        description=action.description,
        params=action.params,
        parameters=action.schema(),
    )
