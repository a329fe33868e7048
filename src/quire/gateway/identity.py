"""Which conversation a request belongs to.

A client sends its whole transcript with every request. Items (messages, or items of Responses) are compared by hashes.
The hashes ignore differences without meaning: a text as a string or as one block, cache marks, ids of output items, and
thinking. A *line* is a known transcript. A request continues a line, repeats it, rewrites its end, or branches off.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import groupby
from threading import Lock
from typing import Any, Literal, NamedTuple

import msgspec

from quire.gateway.routing import Protocol
from quire.gateway.spans import split_array
from quire.providers.responses import is_by_assistant, is_call_output

Role = Literal["system", "user", "assistant", "tool"]
ANONYMOUS = "anonymous"
_SAFE = re.compile(r"[A-Za-z0-9._-]{1,80}")
_CLAUDE_USER = re.compile(rb'_session_([A-Za-z0-9-]{8,80})"|session_id\\*"\s*:\s*\\*"([A-Za-z0-9-]{8,80})')
_THINKING = ("thinking", "redacted_thinking")
_TEXTS = ("text", "input_text", "output_text")
_IGNORED = frozenset({"cache_control", "annotations", "logprobs", "citations", "caller"})
_IGNORED_FIELDS = frozenset(
    {
        "annotations",
        "audio",
        "cache_control",
        "id",
        "internal_chat_message_metadata_passthrough",  # Codex adds it to a reply when it sends it back
        "phase",
        "refusal",
        "status",
    }
)
_THOUGHTS = frozenset({"reasoning", "reasoning_content", "reasoning_details", "thinking"})
_SESSIONS = 64
_CACHED_BYTES = 64 << 20
_LAST_TURN = 2  # a message and the reply to it
_encode = msgspec.json.Encoder(order="deterministic").encode


class Item(NamedTuple):
    """An item of a transcript: its bytes, its hash, and who speaks. Results of tools have the role `tool`."""

    raw: bytes
    hash: bytes
    role: Role


def find_session(headers: Mapping[bytes, bytes], metadata: bytes) -> str:
    """Return the name of the session that a client gives its request, or `ANONYMOUS`.

    Credentials are not used: they rotate. `session-id` and `prompt_cache_key` of Codex are not used either: sub-agents
    have the values of their parent.
    """
    agent = headers.get(b"x-claude-code-agent-id")
    claude = headers.get(b"x-claude-code-session-id") or _session_in(metadata)
    if claude and agent:
        claude += b"." + agent
    for found in (headers.get(b"x-quire-session"), claude, headers.get(b"thread-id"), headers.get(b"x-session-id")):
        if found:
            text = found.decode("latin-1")
            return text if _SAFE.fullmatch(text) and text != ANONYMOUS else blake2b(found, digest_size=12).hexdigest()
    return ANONYMOUS


def _session_in(metadata: bytes) -> bytes | None:
    found = _CLAUDE_USER.search(metadata) if b"user_id" in metadata else None
    return (found[1] or found[2]) if found else None


class _Transcript(NamedTuple):
    """The last array of a session: its bytes, its items, and where each of them ends."""

    array: bytes
    items: list[Item]
    ends: list[int]

    def count_common(self, array: bytes) -> int:
        """Return how many items at the beginning have the same bytes, at the same places, in another array."""
        low, high, step = 0, len(self.ends), 1
        probe = high  # most clients change the last items only
        while low < high:
            if array.startswith(self.array[: self.ends[probe - 1]]):
                low = probe
            else:
                high, step = probe - 1, 2 * step
            probe = max(high - step + 1, (low + high + 1) // 2)
        return low


class ItemReader:
    """Reads the items of transcripts. Items of an earlier request of the same session are not decoded again."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, _Transcript] = OrderedDict()
        self._lock = Lock()

    def read(self, array: bytes, protocol: Protocol, session: str) -> list[Item]:
        """Return the items of a transcript. Raise `ValueError` if it is no array, or one of them is not an object."""
        key = f"{protocol} {session}"
        with self._lock:
            known = self._last.get(key, _NOTHING)
        count = known.count_common(array)
        end = known.ends[count - 1] if count else 0
        rest = array[end:]
        if count and rest.startswith(b","):
            rest = b"[" + rest[1:]
        elif count and rest.strip() == b"]":
            rest = b"[]"
        elif count:  # a space before the comma
            count, end, rest = 0, 0, array
        items, ends = known.items[:count], known.ends[:count]
        for raw in split_array(rest):
            value = msgspec.json.decode(raw)
            if not isinstance(value, dict):
                raise ValueError("An item is not an object.")
            end = array.index(raw, end) + len(raw)
            items.append(Item(raw, hash_item(value), _role_of(value, protocol)))
            ends.append(end)
        if count or len(array) >= len(known.array):  # a short side call does not replace a long transcript
            self._keep(key, _Transcript(array, items, ends))
        return list(items)

    def _keep(self, key: str, transcript: _Transcript) -> None:
        with self._lock:
            self._last[key] = transcript
            self._last.move_to_end(key)
            while len(self._last) > _SESSIONS or sum(len(one.array) for one in self._last.values()) > _CACHED_BYTES:
                self._last.popitem(last=False)


_NOTHING = _Transcript(b"", [], [])


def hash_item(value: Mapping[str, Any]) -> bytes:
    """Return the hash of an item. It ignores fields that clients change without a meaning."""
    kind = value.get("type")
    plain: dict[str, Any] = {
        key: inner
        for key, inner in value.items()
        if inner not in (None, [], {}, "") and key not in _IGNORED_FIELDS and key not in _THOUGHTS
    }
    if "role" in value:
        plain.pop("type", None)
        plain["content"] = _plain_blocks(value.get("content"))
    elif kind == "reasoning":
        plain = {"type": kind, "encrypted_content": value.get("encrypted_content"), "summary": value.get("summary")}
    if isinstance(arguments := plain.get("arguments"), str):
        plain["arguments"] = _plain_arguments(arguments)
    if isinstance(called := plain.get("function_call"), dict) and isinstance(called.get("arguments"), str):
        plain["function_call"] = {**called, "arguments": _plain_arguments(called["arguments"])}
    if isinstance(calls := plain.get("tool_calls"), list):
        plain["tool_calls"] = [_plain_call(call) for call in calls]
    if "output" in plain:
        plain["output"] = _plain_blocks(plain["output"])
    return blake2b(_encode(plain), digest_size=12).digest()


def _plain_blocks(content: object) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        return [] if content is None else [content]
    blocks = []
    for block in content:
        if not isinstance(block, dict) or block.get("type") in _THINKING:
            continue
        plain = {key: inner for key, inner in block.items() if key not in _IGNORED and inner is not None}
        if block.get("type") in _TEXTS:
            if not block.get("text"):
                continue
            plain["type"] = "text"
        elif block.get("type") == "tool_result":
            plain["content"] = _plain_blocks(block.get("content"))
        blocks.append(plain)
    return blocks


def _plain_call(call: object) -> object:
    if not isinstance(call, dict):
        return call
    plain = {key: inner for key, inner in call.items() if key not in ("index", "type")}
    if isinstance(function := plain.get("function"), dict) and isinstance(function.get("arguments"), str):
        plain["function"] = {**function, "arguments": _plain_arguments(function["arguments"])}
    return plain


def _plain_arguments(text: str) -> object:
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return text


def _role_of(value: dict[str, Any], protocol: Protocol) -> Role:
    role = value.get("role")
    if role in ("system", "developer"):  # Codex sends tools as an item with the role `developer`
        return "system"
    if protocol == "responses":
        if is_call_output(value):
            return "tool"
        if is_by_assistant(value):
            return "assistant"
    if role == "assistant":
        return "assistant"
    if role == "tool":
        return "tool"
    content = value.get("content")
    has_result = isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )
    return "tool" if has_result else "user"


def count_prompts(items: Sequence[Item]) -> int:
    """Return the number of system messages at the beginning. They are passed on and belong to no line."""
    return next((n for n, item in enumerate(items) if item.role != "system"), len(items))


# Comparing

Kind = Literal["retry", "continue", "rewrite", "tentative", "branch", "nothing"]
"""How a transcript relates to a line:

| kind        | meaning                                                                                          |
|-------------|--------------------------------------------------------------------------------------------------|
| `retry`     | it equals the line, or lacks only the reply at the end of the line                               |
| `continue`  | it begins with the whole line                                                                    |
| `rewrite`   | it differs in the last turn of the line, and the client continued from there                     |
| `tentative` | its end differs, and the client has not continued from there: nothing is recorded yet            |
| `branch`    | it differs from an earlier turn of the line on, and the client continued from there              |
| `nothing`   | they have no reply in common                                                                     |
"""


class Known(NamedTuple):
    """The hashes and roles of a line."""

    hashes: Sequence[bytes]
    roles: Sequence[Role]


class Relation(NamedTuple):
    """How a transcript relates to a line, and how many items at the beginning they have in common."""

    kind: Kind
    common: int


def _count_common(hashes: list[bytes], known: Sequence[bytes]) -> int:
    """Return how many hashes at the beginning are the same."""
    if hashes == known[: len(hashes)]:
        return len(hashes)
    return next(n for n, (one, other) in enumerate(zip(hashes, known, strict=False)) if one != other)


def compare(items: Sequence[Item], line: Known, *, is_anonymous: bool = False) -> Relation:
    """Return how a transcript relates to a line.

    In anonymous sessions different conversations may begin alike, so a different end is a branch, not a rewrite.
    """
    length = len(line.hashes)
    common = _count_common([item.hash for item in items[:length]], line.hashes)
    rest, fresh = line.roles[common:], items[common:]
    if not fresh and common and all(role == "assistant" for role in rest):
        return Relation("retry", common)
    if not rest:
        return Relation("continue" if common else "nothing", common)
    has_continued = any(item.role == "assistant" for item in fresh)
    turns = [role for role, _ in groupby(rest)]  # a reply of Responses has several items
    if len(turns) <= _LAST_TURN:
        same_reply = length > common + 1 and [item.hash for item in items[common + 1 : length]] == list(
            line.hashes[common + 1 :]
        )
        is_other_reply = turns == ["assistant"] and common > 0 and bool(fresh)
        if same_reply or is_other_reply or (has_continued and common and not is_anonymous):
            return Relation("rewrite", common)
        if common and not (has_continued and is_anonymous):
            return Relation("tentative", common)
    if "assistant" not in line.roles[:common]:
        return Relation("nothing", 0)
    return Relation("branch" if has_continued else "tentative", common)
