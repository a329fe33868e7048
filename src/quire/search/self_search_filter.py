"""Echoes: exchanges in which a model searched this very context. They contain the query and quote the hits, so the next
similar query would rank them before the pages they quote, and every search would add one more.

An echo is recognized by the arguments and answers of quire's tools, not by their names alone, because a user's tool may
be called `find` too. An echo stays a hit, but it is ranked behind all others.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from quire import errors
from quire.core.records import Header, PageRecord
from quire.core.state import State
from quire.model.messages import Message, ToolCall
from quire.model.pages import Form, parse_index
from quire.search.page_text import read_messages
from quire.search.query import Scope

NOTHING_FOUND: Final = "Nothing found for "
"""The beginning of the answer of the tool `find` without a hit."""
FIND_TOOL: Final = "find"
READ_TOOL: Final = "read_page"
OTHER_TOOLS: Final = ("expand_details", "hide_details", "move_page", "remove_page", "archive", "recall")
"""Tools that add no text about a page. A tool that adds text, such as `write_page`, makes no echo."""
_MAX_OTHER_TEXT = 300
"""The most characters of text next to the calls. A longer text may say something that no other page has."""
_KNOWN = 50_000
_INDEX = re.compile(r"\[([^\s\[\]]+)(?: [^\[\]\n]*)?\] ")
"""A page as quire's tools list it: `[usr-12] name`, `[usr-0 3 pages] name`."""
_REFUSAL = re.compile(r"\W*(\w+): ")
_REFUSALS = {name for name, kind in vars(errors).items() if isinstance(kind, type)} | {"InternalError"}
_known: "WeakKeyDictionary[State, dict[frozenset[int], EchoCache]]" = WeakKeyDictionary()


class EchoCache:
    """The pages that were found to be echoes for one scope. A page is read once, and again when it changes."""

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self._others: set[int] = set()
        self._version: tuple[bytes, int] = b"", 0
        self._segments: frozenset[str] = frozenset()

    def follow(self, state: State, scope: Scope) -> "EchoCache":
        """Forget the pages that changed since the last search."""
        identity, version = self._version
        changed = state.pages_changed_since(version) if identity == state.head.identity else None
        if changed is None or len(self.keys) + len(self._others) > _KNOWN:
            self.keys.clear()
            self._others.clear()
        else:
            self.keys.difference_update(changed)
            self._others.difference_update(changed)
        self._version = state.head.identity, state.version
        self._segments = segment_ids(state, scope)
        return self

    def learn(self, state: State, pages: Iterable[PageRecord]) -> set[int]:
        """Read pages that are not known yet, and return the keys of new echoes."""
        new: set[int] = set()
        for page in pages:
            header = page.header
            has_calls = header.form is Form.ASSISTANT and (len(header.numbers) > 1 or header.pending)
            if has_calls and page.key not in self.keys and page.key not in self._others:
                echo = is_echo(_read(state, page.header), self._segments)
                (new if echo else self._others).add(page.key)
        self.keys |= new
        return new


def echo_cache_of(state: State, scope: Scope) -> EchoCache:
    """Return the echo cache of a state and a scope."""
    seen = _known.setdefault(state, {})
    return seen.setdefault(scope.segments, EchoCache()).follow(state, scope)


def segment_ids(state: State, scope: Scope) -> frozenset[str]:
    """Return the ids of the segments in a scope."""
    return frozenset(state.counters[number].segment for number in scope.segments)


def is_echo(messages: Iterable[Message], segments: Collection[str]) -> bool:
    """Return whether an exchange only searches and reads pages of these segments, with few words."""
    calls: list[ToolCall] = []
    results: dict[str | None, str] = {}
    words = 0
    for message in messages:
        if message.role == "tool":
            results[message.tool_call_id] = message.text
            continue
        if not all(call.name.endswith((FIND_TOOL, READ_TOOL, *OTHER_TOOLS)) for call in message.tool_calls):
            return False
        calls += message.tool_calls
        words += len(message.text)
        if not calls or words > _MAX_OTHER_TEXT:
            return False
    return bool(calls) and all(_is_own(call, results.get(call.id), segments) for call in calls)


def _read(state: State, header: Header) -> Iterator[Message]:
    """Yield the messages of an exchange one by one: the first usually shows that it is not an echo."""
    for number in header.numbers:
        yield from read_messages(state.stored, [number])


def _is_own(call: ToolCall, result: str | None, segments: Collection[str]) -> bool:
    """Return whether a call is one of quire's tools: its arguments and its answer have their form."""
    given = _arguments(call)
    if given is None:
        return False
    if not call.name.endswith(FIND_TOOL) and "page" in given:
        return _is_page(str(given["page"]).strip("[] ").split(" ")[0], segments)
    if call.name.endswith(FIND_TOOL):
        fits = "query" in given and given.keys() <= {"query", "limit"}
    else:
        fits = call.name.endswith(READ_TOOL) and given.keys() <= {"start", "length"}
    return fits and (result is None or _is_answer(result, segments))


def _is_answer(text: str, segments: Collection[str]) -> bool:
    refusal = _REFUSAL.match(text)
    return (
        (refusal is not None and refusal[1] in _REFUSALS)
        or text.lstrip('"').startswith(NOTHING_FOUND)
        or any(_is_page(found[1], segments) for found in _INDEX.finditer(text))
    )


def _is_page(index: str, segments: Collection[str]) -> bool:
    parts = parse_index(index)
    return parts is not None and parts.segment in segments


def _arguments(call: ToolCall) -> Mapping[str, object] | None:
    try:
        given = msgspec.json.decode(call.arguments or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return given if isinstance(given, dict) else None
