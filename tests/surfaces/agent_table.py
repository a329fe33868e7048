"""The table of an agent's tools: what each call does and says, and which calls are refused.

The calls meet the context of `open_book`: `mem-1` is a note, `mem-2` a folder with the note `mem-3`, `mem-4` a
cold note, `mem-5` a pinned one, `usr-1` and `usr-2` the conversation, `vault-1` a private page.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

from quire import Context, Permission, Segment, ToolCall


def open_book(ctx: Context) -> Context:
    """Write the pages of the table into a new context."""
    ctx.system("Be careful.")
    ctx.user("I want to fly to Seattle.")
    ctx.assistant("On which day?")
    pages = ctx.pages
    pages.create_detail_page("Trip", "Where to", "Seattle on May 20.", "mem-0")
    pages.create_contents_page("Wishes", "", "mem-0")
    pages.create_detail_page("座位", "", "靠窗的座位。", "mem-2")
    pages.archive(pages.create_detail_page("Old", "", "An old note about trains.", "mem-0"), cold=True)
    pages.create_detail_page("Rules", "", "Never by bus.", "mem-0", pinned=True)
    pages.add_segment(Segment(id="vault", permission=Permission.PRIVATE))
    pages.create_detail_page("Secret", "", "Seattle is off.", "vault-0")
    return ctx


class Call(NamedTuple):
    """A call that works, what its answer holds, and the fields of pages after it."""

    tool: str
    arguments: dict[str, Any]
    says: tuple[str, ...] = ()
    pages: Mapping[str, dict[str, Any] | None] = MappingProxyType({})
    """The fields of each page; `None` says that it is gone."""


CALLS = (
    Call("find", {"query": "Seattle"}, ("[usr-1]", "[mem-1]")),
    Call("find", {"query": "座位", "limit": 1}, ("[mem-3]",)),
    Call("find", {"query": "trains"}, ("[mem-4]",)),
    Call("read_page", {}, ("mem-2", "usr-1", "Wishes")),
    Call("read_page", {"page": "mem-1"}, ("Seattle on May 20.",)),
    Call("read_page", {"page": "mem-1", "start": 11, "length": 6}, ("May",)),
    Call("read_page", {"page": "mem-2"}, ("mem-3", "座位")),
    Call("read_page", {"page": "mem-4"}, ("trains",)),
    Call("read_page", {"page": "sys-1"}, ("Be careful.",)),
    Call("budget", {}, ("tokens",)),
    Call("hide_details", {"page": "usr-1"}, ("usr-1",), {"usr-1": {"visibility": "HIDDEN", "lifecycle": "ACTIVE"}}),
    Call("expand_details", {"page": "mem-3"}, ("mem-3",), {"mem-3": {"visibility": "EXPANDED"}}),
    Call(
        "write_page", {"name": "Gate", "text": "B 12"}, ("mem-6",), {"mem-6": {"name": "Gate", "description": "B 12"}}
    ),
    Call(
        "write_page",
        {"page": "mem-1", "text": "Oslo"},
        ("mem-1",),
        {"mem-1": {"description": "Where to", "detail": "Oslo"}},
    ),
    Call(
        "write_page",
        {"page": "mem-3", "name": "Seat", "summary": "x"},
        (),
        {"mem-3": {"name": "Seat", "description": "x"}},
    ),
    Call("write_page", {"name": "A", "folder": "mem-2", "text": "b"}, ("mem-6",), {"mem-6": {"parent": "mem-2"}}),
    Call("write_page", {"name": "All", "pages": ["mem-1"]}, ("mem-6",), {"mem-1": {"parent": "mem-6"}}),
    Call("move_page", {"page": "mem-1", "folder": "mem-2", "before": "mem-3"}, (), {"mem-1": {"parent": "mem-2"}}),
    Call("move_page", {"page": "mem-2", "folder": "win-0"}, ("win-1",), {"win-2": {"name": "座位"}, "mem-3": None}),
    Call("archive", {"page": "mem-1"}, ("mem-1",), {"mem-1": {"lifecycle": "HOT_ARCHIVED", "parent": "mem-0"}}),
    Call("archive", {"page": "mem-2", "cold": True}, (), {"mem-3": {"effective": "COLD_ARCHIVED"}}),
    Call("recall", {"page": "mem-4"}, ("mem-4",), {"mem-4": {"lifecycle": "ACTIVE", "parent": "mem-0"}}),
    Call("remove_page", {"page": "mem-2"}, ("2 pages",), {"mem-2": None, "mem-3": None}),
    Call("segment", {"do": "add", "segment": "Maps"}),
    Call("segment", {"do": "permit", "segment": "free", "permission": "READ_ONLY"}, ("free",)),
    Call("segment", {"do": "remove", "segment": "free"}, ("free",), {"free-0": None}),
)

_FIND = {"query": "Seattle", "limit": 1}
_COLD = {"page": "mem-1", "cold": True}
SAME: dict[str, tuple[tuple[Any, ...], tuple[str, dict[str, Any]]]] = {
    "JSON": (("find", '{"query": "Seattle", "limit": 1}'), ("find", _FIND)),
    "bytes": (("find", b'{"query": "Seattle", "limit": 1}'), ("find", _FIND)),
    "a number as text": (("find", {"query": "Seattle", "limit": "1"}), ("find", _FIND)),
    "a number with a point": (("find", '{"query": "Seattle", "limit": 1.0}'), ("find", _FIND)),
    "null for a default": (("read_page", {"page": "mem-1", "start": None}), ("read_page", {"page": "mem-1"})),
    "a truth as text": (("archive", {"page": "mem-1", "cold": "true"}), ("archive", _COLD)),
    "an index in brackets": (("hide_details", {"page": "[mem-1 7]"}), ("hide_details", {"page": "mem-1"})),
    "a call of quire": ((ToolCall("1", "archive", '{"page": "mem-1", "cold": true}'),), ("archive", _COLD)),
    "a call of OpenAI": (
        (
            {
                "id": "1",
                "type": "function",
                "function": {"name": "archive", "arguments": '{"page":"mem-1","cold":true}'},
            },
        ),
        ("archive", _COLD),
    ),
    "an object of OpenAI": (
        (SimpleNamespace(id="1", function=SimpleNamespace(name="find", arguments='{"query":"Seattle","limit":1}')),),
        ("find", _FIND),
    ),
    "a call of Responses": (
        ({"type": "function_call", "call_id": "1", "name": "find", "arguments": '{"query":"Seattle","limit":1}'},),
        ("find", _FIND),
    ),
    "a call of Anthropic": (({"type": "tool_use", "id": "1", "name": "archive", "input": _COLD},), ("archive", _COLD)),
}
"""Calls that a model or an SDK writes in another way, and the call that is meant."""


class Hostile:
    """An object that raises whatever is done with it."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


_DEEP: Any = "deep"
for _ in range(500):
    _DEEP = [_DEEP]

REFUSED: dict[str, tuple[tuple[Any, ...], ...]] = {
    "PermissionDenied": (
        ("write_page", {"page": "sys-1", "text": "Do as you like."}),
        ("write_page", {"name": "x", "folder": "sys-0"}),
        ("hide_details", {"page": "mem-5"}),
        ("remove_page", {"page": "mem-5"}),
        ("archive", {"page": "mem-5"}),
        ("remove_page", {"page": "usr-1"}),
        ("remove_page", {"page": "mem-0"}),
        ("move_page", {"page": "usr-1", "folder": "mem-0"}),
        ("segment", {"do": "remove", "segment": "mem"}),
        ("segment", {"do": "permit", "segment": "sys", "permission": "READ_WRITE"}),
    ),
    "NoSuchPage": (
        ("expand_details", {"page": "usr-99"}),
        ("hide_details", {"page": "USR-1"}),
        ("read_page", {"page": "mem-01"}),
        ("read_page", {"page": "vault-1"}),
        ("move_page", {"page": "mem-1", "folder": "vault-0"}),
        ("hide_details", {"page": "[[mem-1]]"}),
        ("expand_details", {"page": "u" * 1_000_000}),
    ),
    "NoSuchSegment": (
        ("segment", {"do": "remove", "segment": "vault"}),
        ("segment", {"do": "permit", "segment": "nix", "permission": "READ_ONLY"}),
    ),
    "InvalidOperation": (
        ("write_page", {"page": "usr-1", "text": "x"}),
        ("write_page", {"page": "mem-2", "text": "x"}),
        ("write_page", {"name": "x", "folder": "mem-1"}),
        ("hide_details", {"page": "mem-4"}),
        ("move_page", {"page": "mem-2", "folder": "mem-2"}),
    ),
    "InternalError": ((Hostile(),),),
    "InvalidValue": (
        (None,),
        (7,),
        (["find"],),
        ("drop_tables", {}),
        ("", {}),
        ("\ud800", {}),
        ("x" * 1_000_000, {}),
        ("find", "{query: Seattle}"),
        ("find", '{"query": "Sea'),
        ("find", "[1, 2]"),
        ("find", "[" * 100_000),
        ("find", '{"query": "a", "limit": ' + "9" * 5_000 + "}"),
        ("find", {"query": "a", "limit": math.nan}),
        ("find", {"query": ["a", "b"]}),
        ("find", {"query": "?!"}),
        ("find", {}),
        ("find", {"query": "a", "where": "here"}),
        ("find", {1: 2}),
        ("find", b"\xff\xfe{"),
        ("find", Hostile()),
        ({"function": 5},),
        ("read_page", {"page": "usr-1", "start": -1}),
        ("read_page", {"page": "usr-1", "start": True}),
        ("write_page", {"name": "\udc00", "text": "x"}),
        ("write_page", {"name": "a", "text": "\udc00"}),
        ("write_page", {"name": "a\x00b", "text": "x"}),
        ("write_page", {"name": "a", "pages": _DEEP}),
        ("write_page", {"name": "n" * 100_000, "text": ""}),
        ("write_page", {"name": "x", "text": "lost", "pages": []}),
        ("write_page", {"name": "x", "pages": ["mem-1", "mem-1"]}),
        ("write_page", {"page": "mem-1", "text": "x", "folder": "mem-2"}),
        ("segment", {"do": "permit", "segment": "free", "permission": "SECRET"}),
    ),
}
"""The word of an error that a model reads, and calls that are refused with it."""
