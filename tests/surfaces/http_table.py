"""The table of the HTTP API: each route with a call and its value, and calls that must be refused.

Every row uses the context of `fill`. A path starts with `{c}` for that context, else it is the whole path.
"""

from typing import Any, NamedTuple

import quire
from quire.windows.apps import Todo

BUDGET = 4_000
USER = {"role": "user", "content": "你好"}


def fill(context: quire.Context) -> quire.Context:
    """Fill a context: three exchanges with tool calls, a folder of three notes, a checkpoint and a window."""
    context.system("Be careful.")
    for turn in range(3):
        context.user(f"Question {turn}: where is 西雅图?")
        context.assistant(None, [{"id": f"c{turn}", "function": {"name": "look", "arguments": "{}"}}])
        context.tool_result(f"c{turn}", f"result {turn}")
    folder = context.pages.create_contents_page("notes", "what was noted", "mem-0")
    for n in range(3):
        context.pages.create_detail_page(f"note {n}", f"number {n}", f"text {n} " * 3, folder)
    context.pages.archive("mem-4", cold=True)
    context.checkpoint("half")
    context.pages.hide("mem-2")
    context.windows.register(Todo)
    context.windows.open("todo", window_id="list")
    return context


class Call(NamedTuple):
    """A request that works: the part of the answer that must hold, and the journal entries that it writes.

    `given` is the query of GET and DELETE, and the body of POST and PATCH. `then` is a GET after it, with a part of its
    answer; the part None means that it is not there any more.
    """

    method: str
    path: str
    given: Any = None
    value: Any = None
    writes: int = 0
    status: int = 200
    then: tuple[str, Any] | None = None


class Refusal(NamedTuple):
    """A request that must be refused. The message must quote each of `names`: what is wrong, what is accepted."""

    method: str
    path: str
    given: Any
    status: int
    code: str
    names: tuple[str, ...] = ()


def _page(**fields: Any) -> dict[str, Any]:
    return {"page": fields}


_UNDONE = [{"operation": "undo"}, {"operation": "window_open", "undone": True}]

_PATCH = {"name": "a", "description": "", "detail": "长"}
_LISTED = {"windows": [{"items": [{"text": "买菜 <b>"}]}]}

CALLS = (
    Call("GET", "/health", value={"status": "ok"}),
    Call("GET", "/openapi.json", value={"openapi": "3.1.0"}),
    Call("GET", "/metrics"),
    Call("GET", "/api/contexts", {"prefix": "测试/still"}, {"contexts": [{"messages": 10}], "next": None}),
    Call("POST", "/api/contexts", {"name": "新 one"}, {"name": "新 one", "budget": BUDGET}, status=201),
    Call("POST", "/api/contexts", {"name": "two", "budget": 900}, {"budget": 900}, status=201),
    Call("GET", "{c}", value={"budget": BUDGET, "stats": {"total_items": 8}}),
    Call("DELETE", "{c}", then=("{c}", None)),
    Call("POST", "{c}/fork", {"name": "fork"}, {"budget": BUDGET}, status=201, then=("/api/contexts/fork", {})),
    Call("POST", "{c}/fork", {"name": "old", "at": "half"}, {"name": "old"}, status=201),
    Call("GET", "{c}/stats", value={"total_items": 8, "window_items": 1}),
    # Pages
    Call("GET", "{c}/pages", value={"pages": [{"index": f"{name}-0"} for name in ("sys", "mem", "usr", "win")]}),
    Call("GET", "{c}/pages", {"parent": "mem-1"}, {"pages": [{"index": "mem-2"}, {"index": "mem-3"}]}),
    Call("GET", "{c}/pages", {"parent": "mem-1", "lifecycle": "cold"}, {"pages": [{"index": "mem-4"}]}),
    Call("POST", "{c}/pages", {"name": "新", "detail": "文", "parent": "mem-0"}, _page(index="mem-5"), 1, 201),
    Call("POST", "{c}/pages", {"kind": "contents", "name": "f", "parent": "mem-1"}, _page(folder=True), 1, 201),
    Call("GET", "{c}/pages/mem-2", {"max_chars": 6, "offset": 2}, {"detail": "xt 0 t", "path": ["mem-0", "mem-1"]}),
    Call("GET", "{c}/pages/usr-1", value={"messages": [{"role": "user"}]}),
    Call("GET", "{c}/pages/mem-4", value={"lifecycle": "cold", "parent": None, "home": "mem-1", "path": []}),
    Call("PATCH", "{c}/pages/mem-2", _PATCH, _page(name="a"), 1, then=("{c}/pages/mem-2", _PATCH)),
    Call("DELETE", "{c}/pages/mem-1", value={"removed": 3}, writes=1, then=("{c}/pages/mem-2", None)),
    Call("POST", "{c}/pages/mem-2/expand", value=_page(visibility="expanded"), writes=1),
    Call("POST", "{c}/pages/mem-3/hide", value=_page(visibility="hidden"), writes=1),
    Call("POST", "{c}/pages/mem-2/hide", {}, _page(visibility="hidden")),
    Call("POST", "{c}/pages/mem-3/pin", value=_page(pinned=True), writes=1),
    Call("POST", "{c}/pages/mem-3/unpin", value=_page(pinned=False)),
    Call("POST", "{c}/pages/mem-3/archive", value=_page(lifecycle="hot"), writes=1),
    Call("POST", "{c}/pages/mem-3/archive", {"cold": True}, _page(lifecycle="cold", home="mem-1"), 1),
    Call("POST", "{c}/pages/mem-3/restore", value=_page(lifecycle="active")),
    Call("POST", "{c}/pages/mem-4/recall", value=_page(lifecycle="active", parent="mem-1"), writes=1),
    Call("POST", "{c}/pages/mem-3/move", {"target": "mem-0"}, _page(index="mem-3", parent="mem-0"), 1),
    Call("POST", "{c}/pages/mem-3/move", {"target": "usr-0"}, {"moved": {"mem-3": "usr-7"}}, 1),
    # Messages
    Call("GET", "{c}/messages", {"after": 2, "limit": 1}, {"messages": [{"index": 3, "role": "tool"}], "next": 3}),
    Call("POST", "{c}/messages", USER, {"index": 10}, 1, 201, ("{c}/pages/usr-7", {"messages": [USER]})),
    Call("POST", "{c}/messages", [USER, {"role": "assistant", "content": "!"}], {"index": 11}, 1, 201),
    Call("POST", "{c}/import", {"messages": [USER]}, {"messages": 1, "first": 10, "findings": []}, 1),
    Call("POST", "{c}/import", [{"role": "tool", "tool_call_id": "zz", "content": "x"}], {"marked": [10]}, 1),
    # Views
    Call("GET", "{c}/view", {"budget": 900, "format": "anthropic", "recall": "true"}, {"budget": 900}),
    Call("GET", "{c}/sent", {"format": "anthropic"}, {"tokens": None, "view": None}),
    Call("POST", "{c}/render", {"reserve": 10}, {"format": "openai", "folded": None}),
    Call("GET", "{c}/diff", {"left_seq": 10}, {"left": {"seq": 10}, "format": "openai"}),
    Call("GET", "{c}/why/mem-2", {"budget": 900}, {"index": "mem-2", "shown": "line"}),
    # History
    Call("GET", "{c}/history", {"order": "desc", "limit": 1}, {"entries": [{"operation": "window_open"}]}),
    Call(
        "GET",
        "{c}/history",
        {"operation": "user", "page": "usr-1"},
        {"entries": [{"text": "Question 0: where is 西雅图?"}]},
    ),
    Call("POST", "{c}/undo", {"seq": 19}, None, 1, then=("{c}/history?order=desc&limit=2", {"entries": _UNDONE})),
    Call("GET", "{c}/rollback", {"to": "half"}, {"entries": 2, "messages_before": 10, "messages_after": 10}),
    Call("POST", "{c}/rollback", {"to": "half"}, None, 1, then=("{c}/pages/mem-2", {"visibility": "expanded"})),
    Call("POST", "{c}/rollback", {"to": 3}, None, 1, then=("{c}/messages", {"messages": [{}, {}]})),
    Call("POST", "{c}/checkpoint", {"name": "这里"}, writes=1, then=("{c}/rollback?to=这里", {"entries": 0})),
    # Search, windows, tools
    Call("GET", "{c}/search", {"q": "西雅图", "limit": 1, "role": "user"}, {"hits": [{"path": ["usr-0"]}]}),
    Call("GET", "{c}/search", {"q": "note", "kind": "folder"}, {"hits": [{"index": "mem-1"}]}),
    Call("GET", "{c}/windows", value={"windows": [{"id": "list", "app": "todo", "error": ""}]}),
    Call("POST", "{c}/windows/list/add", {"text": "买菜 <b>"}, writes=1, then=("{c}/windows", _LISTED)),
    Call("POST", "{c}/windows/list/close", {"summary": "done"}, writes=1, then=("{c}/windows", {"windows": []})),
    Call("GET", "{c}/tools", {"format": "mcp"}, {"format": "mcp"}),
    Call(
        "POST",
        "{c}/tools/call",
        {"name": "read_page", "arguments": {"page": "sys-1"}},
        {"result": "System: Be careful."},
    ),
    Call("POST", "{c}/tools/call", {"name": "write_page", "arguments": '{"name": "x"}'}, {"result": "Wrote mem-5."}, 1),
    Call("GET", "/api/gateway/sessions", value={"sessions": []}),
)

REFUSALS = (
    Refusal("POST", "/api/contexts", {"name": "测试/still ?#%"}, 422, "invalid_operation", ("测试/still ?#%",)),
    Refusal("POST", "/api/contexts", {"name": " outer"}, 400, "invalid_value", ("' outer'",)),
    Refusal("POST", "/api/contexts", {}, 400, "invalid_value", ("`name`",)),
    Refusal("POST", "/api/contexts", {"name": "x", "budget": 0}, 400, "invalid_value", ("budget", "0")),
    Refusal("GET", "/api/contexts", {"limit": 0}, 400, "invalid_value", ("limit", "'0'", "1,000")),
    Refusal("POST", "{c}/fork", {"name": "测试/still ?#%"}, 422, "invalid_operation", ("测试/still ?#%",)),
    Refusal("POST", "{c}/fork", {"name": "x", "at": "nowhere"}, 400, "invalid_value", ("nowhere", "half")),
    Refusal("POST", "{c}/fork", {"at": 1}, 400, "invalid_value", ("`name`", "name, at")),
    Refusal("GET", "{c}/pages", {"parent": "mem-2"}, 422, "invalid_operation", ("mem-2",)),
    Refusal("GET", "{c}/pages", {"parent": "mem-1", "after": "usr-1"}, 400, "invalid_value", ("usr-1",)),
    Refusal("GET", "{c}/pages", {"after": "mem-2"}, 400, "invalid_value", ("'mem-2'", "sys-0, mem-0, usr-0, win-0")),
    Refusal("GET", "{c}/pages", {"lifecycle": "zz"}, 400, "invalid_value", ("'zz'", "active", "hot", "cold")),
    Refusal("GET", "{c}/pages", {"limit": "abc"}, 400, "invalid_value", ("'abc'", "1,000")),
    Refusal("POST", "{c}/pages", {"name": "", "parent": "mem-0"}, 400, "invalid_value", ("name",)),
    Refusal("POST", "{c}/pages", {"name": "x", "parent": "no-0"}, 404, "no_such_page", ("no-0",)),
    Refusal(
        "POST", "{c}/pages", {"kind": "contents", "name": "x", "detail": "y", "parent": "mem-0"}, 400, "invalid_value"
    ),
    Refusal("GET", "{c}/pages/mem-99", None, 404, "no_such_page", ("'mem-99'",)),
    Refusal("GET", "{c}/pages/USR-1", None, 404, "no_such_page", ("'USR-1'",)),
    Refusal("PATCH", "{c}/pages/usr-1", {"detail": "x"}, 422, "invalid_operation", ("usr-1",)),
    Refusal("PATCH", "{c}/pages/mem-2", {"name": "b", "description": "x" * 3_000}, 400, "invalid_value"),
    Refusal("DELETE", "{c}/pages/mem-99", None, 404, "no_such_page", ("'mem-99'",)),
    Refusal("POST", "{c}/pages/sys-0/hide", None, 422, "invalid_operation", ("sys-0",)),
    Refusal("POST", "{c}/pages/mem-1/move", {"target": "mem-1"}, 422, "invalid_operation", ("mem-1",)),
    Refusal("GET", "{c}/messages", {"after": 99}, 400, "invalid_value", ("99",)),
    Refusal("POST", "{c}/messages", {"role": "nobody"}, 400, "invalid_value", ("'nobody'",)),
    Refusal("POST", "{c}/messages", [], 400, "invalid_value"),
    Refusal("POST", "{c}/import", {"messages": 3}, 400, "invalid_value", ("messages", "3")),
    Refusal("GET", "{c}/view", {"budget": 5}, 422, "irreducible_floor", ("5",)),
    Refusal("GET", "{c}/view", {"format": "xml"}, 400, "invalid_value", ("'xml'", "openai", "anthropic", "responses")),
    Refusal("GET", "{c}/view", {"against": "zz"}, 400, "invalid_value", ("'zz'", "given", "call")),
    Refusal("GET", "{c}/view", {"recall": 2}, 400, "invalid_value", ("recall", "'2'")),
    Refusal("GET", "{c}/view", {"zz": 1}, 400, "invalid_value", ("`zz`", "budget, format, recall, against")),
    Refusal("POST", "{c}/render", {"budget": 20}, 422, "irreducible_floor", ("20",)),
    Refusal("POST", "{c}/render", {"windows": "x"}, 400, "invalid_value", ("'x'", "tail", "inline")),
    Refusal("GET", "{c}/diff", {"left_seq": 999}, 400, "invalid_value", ("999",)),
    Refusal("GET", "{c}/why/mem-99", None, 404, "no_such_page", ("'mem-99'",)),
    Refusal("GET", "{c}/history", {"order": "up"}, 400, "invalid_value", ("'up'", "asc", "desc")),
    Refusal("GET", "{c}/history", {"page": "mem-99"}, 400, "invalid_value", ("mem-99",)),
    Refusal("POST", "{c}/undo", {"seq": 999}, 400, "invalid_value", ("999",)),
    Refusal("GET", "{c}/rollback", None, 400, "invalid_value", ("`to`",)),
    Refusal("GET", "{c}/rollback", {"to": "9" * 5_000}, 400, "invalid_value"),
    Refusal("POST", "{c}/rollback", {"to": "nowhere"}, 400, "invalid_value", ("nowhere", "half")),
    Refusal("POST", "{c}/checkpoint", {"name": "20"}, 400, "invalid_value", ("'20'",)),
    Refusal("GET", "{c}/search", None, 400, "invalid_value", ("`q`",)),
    Refusal("GET", "{c}/search", {"q": "x", "segment": "no"}, 404, "no_such_segment", ("'no'", "'mem'")),
    Refusal("GET", "{c}/search", {"q": "x", "kind": "zz"}, 400, "invalid_value", ("'zz'", "folder", "chapter")),
    Refusal("POST", "{c}/windows/none/add", {}, 404, "no_such_window", ("'none'", "list")),
    Refusal("POST", "{c}/windows/list/fly", {}, 404, "no_such_action", ("'fly'", "add")),
    Refusal("POST", "{c}/windows/list/add", {"txt": "x"}, 400, "invalid_value", ("txt",)),
    Refusal("GET", "{c}/tools", {"format": "xml"}, 400, "invalid_value", ("'xml'", "mcp")),
    Refusal("POST", "{c}/tools/call", {"name": "find", "arguments": 3}, 400, "invalid_value", ("arguments", "3")),
    Refusal("GET", "{c}/events", {"after": "x"}, 400, "invalid_value", ("after", "'x'")),
    Refusal("POST", "/api/gateway/mode", {"name": "zz", "mode": None}, 404, "no_such_context", ("'zz'",)),
    Refusal("PUT", "{c}", {}, 405, "no_such_method"),
    Refusal("GET", "{c}/nothing", None, 404, "no_such_route"),
)
