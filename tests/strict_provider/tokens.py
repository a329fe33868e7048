"""The tokens of a request: o200k tokens of texts, names and arguments, 4 per message and per call, and the tools."""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import quire
from tests.strict_provider.cache import LIFETIME, LONG_LIFETIME, Piece
from tests.strict_provider.requests import Body, Request, encode, to_blocks

_COUNTER = quire.VocabularyCounter()
PER_MESSAGE = 4
"""Tokens of each message and of each call."""
_PER_LIST = 12
"""Tokens of a list of tools in `quire.count_tools`, counted once."""
_MEDIA = ("image", "document", "image_url", "input_image", "file", "input_file", "input_audio")


@lru_cache(maxsize=200_000)
def count_text(text: str) -> int:
    return _COUNTER.count(text)


def count_request(request: Request) -> int:
    """Return the input tokens of a request."""
    return sum(piece.tokens for piece in split_request(request))


def split_request(request: Request) -> list[Piece]:
    """Return the pieces of a request in the order in which the model reads them: tools, system prompt, messages."""
    body = request.body
    pieces = [
        Piece(_dump(tool), _count_tool(encode(tool, is_sorted=False), first=not n), _lifetime(tool))
        for n, tool in enumerate(body.get("tools") or ())
    ]
    prompt = body.get("system" if request.api == "anthropic" else "instructions")
    if prompt and request.api != "chat":
        pieces += _split_message({"role": "system", "content": prompt})
    for message in request.messages:
        pieces += _split_message(message)
    if request.api == "anthropic" and body.get("cache_control") and pieces:
        pieces[-1] = pieces[-1]._replace(lifetime=_lifetime(body))
    return pieces


def _split_message(message: Body) -> Sequence[Piece]:
    """Return one piece for each block and call of a message, or one piece for an item of Responses."""
    return _split_encoded(encode(message, is_sorted=False))


@lru_cache(maxsize=20_000)
def _split_encoded(data: bytes) -> Sequence[Piece]:
    message: Body = json.loads(data)
    fields = {key: value for key, value in message.items() if key not in ("content", "tool_calls", "cache_control")}
    pieces = [
        Piece(_dump(block), _count_block(block, first=not n), _lifetime(block))
        for n, block in enumerate(to_blocks(message.get("content")))
    ]
    pieces += [Piece(_dump(call), PER_MESSAGE + _count_texts(call)) for call in message.get("tool_calls") or ()]
    data, tokens, lifetime = pieces[0] if pieces else Piece(b"", 0)
    tokens += _count_texts(fields) + (0 if message.get("type") == "reasoning" else PER_MESSAGE)
    tokens += count_text(json.dumps(message["tools"])) if message.get("type") == "additional_tools" else 0
    return [Piece(_dump(fields) + data, tokens, lifetime), *pieces[1:]]


def _count_block(block: Body, *, first: bool) -> int:
    if block.get("type") in _MEDIA:
        return _count_media(block)
    is_call = block.get("type") == "tool_use"
    is_next_result = block.get("type") == "tool_result" and not first
    return _count_texts(block) + PER_MESSAGE * (is_call + is_next_result)


def _count_media(block: Body) -> int:
    """Return the tokens of an image, a file or audio: they have no text, so quire itself counts them."""
    with quire.open("memory:", preamble="") as ctx:
        ctx.user([block])
        return sum(ctx.render(max_tokens=1 << 40).by_kind().values()) - PER_MESSAGE


def _count_texts(value: Body) -> int:
    return sum(map(count_text, _iterate_texts(value)))


def _iterate_texts(value: Any) -> Iterator[str]:
    """Yield the texts of a block, a call or an item that cost tokens."""
    if isinstance(value, list):
        for each in value:
            yield from _iterate_texts(each)
    if not isinstance(value, dict):
        return
    for key in ("text", "thinking", "refusal", "name", "arguments", "title", "content", "output", "summary"):
        inner = value.get(key)
        yield from [inner] if isinstance(inner, str) else _iterate_texts(inner)
    yield from _iterate_texts(value.get("function"))
    inner = value.get("input")
    if inner is not None:
        yield inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=10_000)
def _count_tool(tool: bytes, *, first: bool) -> int:
    return quire.count_tools([json.loads(tool)], _COUNTER) - (0 if first else _PER_LIST)


def _lifetime(value: Body) -> float:
    marker = value.get("cache_control")
    return 0.0 if not marker else LONG_LIFETIME if marker.get("ttl") == "1h" else LIFETIME


def _dump(value: Body) -> bytes:
    return encode({key: value[key] for key in value if key != "cache_control"})
