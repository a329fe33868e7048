"""Replies of providers, plain or as events of a stream, and their encodings: read into the form of a plain response."""

import codecs
import zlib
from collections.abc import Callable, Iterator
from gzip import GzipFile
from io import BytesIO
from typing import Any

import msgspec

from quire.errors import install_command
from quire.gateway.routing import Protocol

Values = dict[str, Any]


def read_reply(body: bytes, content_type: str, protocol: Protocol, *, complete: bool = True) -> Values | None:
    """Return the whole response in a body; None if it is not complete, or not a response.

    An incomplete stream has the whole response if it has the event that ends the response.
    """
    try:
        if "text/event-stream" not in content_type.lower():
            if not complete:
                return None
            value = msgspec.json.decode(body)
            is_response = isinstance(value, dict) and value.get("error") is None  # Responses has the field with null
            return value if is_response else None
        events = list(_read_events(body, complete=complete))
        return {"anthropic": _join_anthropic, "openai": _join_chat, "responses": _join_responses}[protocol](events)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError, AttributeError):
        return None


def _read_events(body: bytes, *, complete: bool) -> Iterator[Values]:
    """Yield the data of the events of a stream. The last event of an incomplete stream may be cut: leave it out."""
    body = body.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    blocks = body.split(b"\n\n")
    for block in blocks if complete else blocks[:-1]:
        lines = [line[5:].lstrip() for line in block.split(b"\n") if line.startswith(b"data:")]
        data = b"\n".join(lines)
        if data and data != b"[DONE]":
            value = msgspec.json.decode(data)
            if isinstance(value, dict):
                yield value


def _join_anthropic(events: list[Values]) -> Values | None:
    message: Values = {}
    texts: dict[int, str] = {}
    for event in events:
        match event.get("type"):
            case "message_start":
                message = {**event["message"], "content": []}
            case "content_block_start":
                message["content"].append(dict(event["content_block"]))
            case "content_block_delta":
                _add_delta(message["content"][event["index"]], event["delta"], texts, event["index"])
            case "content_block_stop":
                if event["index"] in texts:
                    message["content"][event["index"]]["input"] = msgspec.json.decode(texts[event["index"]] or "{}")
            case "message_delta":
                message |= {key: value for key, value in event["delta"].items() if value is not None}
                message["usage"] = {**message.get("usage", {}), **(event.get("usage") or {})}
            case "message_stop":
                return message
            case "error":
                return None
    return None


def _add_delta(block: Values, delta: Values, texts: dict[int, str], index: int) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
        case "input_json_delta":
            texts[index] = texts.get(index, "") + delta["partial_json"]
        case "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
        case "signature_delta":
            block["signature"] = block.get("signature", "") + delta["signature"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]


def _join_chat(events: list[Values]) -> Values | None:
    message: Values = {"role": "assistant", "content": None}
    calls: dict[int, Values] = {}
    whole: Values = {}
    reason = None
    for event in events:
        if event.get("error"):
            return None
        whole |= {key: event[key] for key in ("id", "model", "usage") if event.get(key)}
        for choice in event.get("choices") or ():
            if choice.get("index", 0):
                continue
            reason = choice.get("finish_reason") or reason
            delta = choice.get("delta") or {}
            for key in ("content", "refusal", "reasoning_content", "reasoning"):
                if isinstance(delta.get(key), str):
                    message[key] = (message.get(key) or "") + delta[key]
            for call in delta.get("tool_calls") or ():
                known = calls.setdefault(call.get("index", len(calls)), {"id": ""})
                known["id"] = call.get("id") or known["id"]
                known["type"] = "custom" if "custom" in known or call.get("custom") else "function"
                _add_call(known, call)
            _add_call(message, delta)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return {**whole, "choices": [{"index": 0, "message": message, "finish_reason": reason}]} if reason else None


def _add_call(known: Values, delta: Values) -> None:
    """Append a piece of a call: of a function, of a custom tool, or of a function in the old form."""
    for kind in ("function", "custom", "function_call"):
        piece = delta.get(kind)
        if isinstance(piece, dict) and any(piece.values()):  # some servers send the other kinds empty
            called = known.setdefault(kind, {"name": "", "input" if kind == "custom" else "arguments": ""})
            for key in called:
                called[key] += piece.get(key) or ""


def _join_responses(events: list[Values]) -> Values | None:
    """Return the response in the last event. Some servers leave its output empty: then the finished items are used."""
    items = [event["item"] for event in events if event.get("type") == "response.output_item.done"]
    for event in events:
        if event.get("type") in ("response.completed", "response.incomplete"):
            response: Values = event["response"]
            return response if response.get("output") else {**response, "output": items}
    return None


_CHUNK = 1 << 16


class UndecodableBody(Exception):
    """The encoding is unknown, its package is not installed, the body is damaged, or the result is too large."""


def decode_body(data: bytes, encoding: str, limit: int) -> bytes:
    """Return the body without its encodings. Raise `UndecodableBody` if that is not possible within `limit` bytes."""
    for name in reversed([part.strip().lower() for part in encoding.split(",")]):
        if name in ("", "identity"):
            continue
        decode = _DECODERS.get(name)
        if decode is None:
            raise UndecodableBody(f"The encoding {name!r} is unknown.")
        try:
            data = decode(data, limit)
        except UndecodableBody:
            raise
        except ImportError as error:
            raise UndecodableBody(f"{name} needs {error.name}: {install_command('gateway')}") from None
        except Exception as error:  # each library has errors of its own
            raise UndecodableBody(f"The body is not valid {name}: {error}.") from None
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _too_large(limit: int) -> UndecodableBody:
    return UndecodableBody(f"The decoded body exceeds {limit:,} bytes.")


def _decode_zlib(data: bytes, limit: int, bits: int = zlib.MAX_WBITS) -> bytes:
    decoder = zlib.decompressobj(bits)
    found = decoder.decompress(data, limit)
    if decoder.unconsumed_tail:
        raise _too_large(limit)
    if not decoder.eof:
        raise UndecodableBody("The body is incomplete.")
    return found


def _decode_gzip(data: bytes, limit: int) -> bytes:
    return _read_all(GzipFile(fileobj=BytesIO(data)), limit)


def _read_all(reader: Any, limit: int) -> bytes:
    found = bytearray()
    while chunk := reader.read(_CHUNK):
        found += chunk
        if len(found) > limit:
            raise _too_large(limit)
    return bytes(found)


def _decode_deflate(data: bytes, limit: int) -> bytes:
    try:
        return _decode_zlib(data, limit)
    except zlib.error:  # some senders leave out the zlib header
        return _decode_zlib(data, limit, -zlib.MAX_WBITS)


def _decode_brotli(data: bytes, limit: int) -> bytes:
    import brotli  # late: an optional package

    decoder = brotli.Decompressor()
    found: bytes = decoder.process(data, output_buffer_limit=limit)
    if not decoder.is_finished():
        raise _too_large(limit) if len(found) >= limit else UndecodableBody("The body is incomplete.")
    return found


def _decode_zstd(data: bytes, limit: int) -> bytes:
    import zstandard  # late: an optional package

    return _read_all(zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data), limit)


_DECODERS: dict[str, Callable[[bytes, int], Any]] = {
    "gzip": _decode_gzip,
    "x-gzip": _decode_gzip,
    "deflate": _decode_deflate,
    "br": _decode_brotli,
    "zstd": _decode_zstd,
}
