"""Providers: messages in the shapes of OpenAI chat, OpenAI Responses and Anthropic, one module each.

`parse` reads messages of any provider, `format_messages` writes them. A message is written for its own provider exactly
as it was read, and for another one as faithfully as the shape of that provider allows. `format_request` writes messages
to be sent: names and ids that a provider refuses are spelled differently.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec import structs

from quire.model.messages import Message, Provider
from quire.providers import anthropic, openai, responses
from quire.providers.detection import Entry, detect_provider, unwrap_response
from quire.providers.legal_form import make_legal
from quire.providers.originals import read_message
from quire.providers.plain_json import invalid_value, to_plain_json

__all__ = ["format_messages", "format_request", "parse", "parse_each"]

_ACCEPTED = "give a message as a dict or an SDK object, a list of them, or a whole response"
Parser = Callable[[Iterable[Entry]], Iterator[Message]]
_PARSERS: Mapping[Provider, Parser] = {
    "openai": openai.parse,
    "responses": responses.parse,
    "anthropic": anthropic.parse,
}
_FORMATS: Mapping[str, Callable[[Sequence[Message]], list[dict[str, Any]]]] = {
    "openai": openai.format,
    "responses": responses.format,
    "anthropic": anthropic.format,
}


def parse(value: object) -> list[Message]:
    """Return the messages of a dict, an SDK object, a list of them or a whole response, in order.

    A message that fits several providers is read like the first message of the list that fits only one. Raise
    `InvalidValue`, which names the value that is not a message.
    """
    if isinstance(value, list | tuple):
        entries = [entry for n, inner in enumerate(value) for entry in _entries(inner, f"messages[{n}]")]
    else:
        entries = list(_entries(value, "message"))
    detected = [(_provider(entry), entry) for entry in entries]
    first = next((provider for provider, _ in detected if provider), None)
    return list(_messages(detected, first or "openai"))


def parse_each(values: Iterable[object]) -> Iterator[Message]:
    """Yield the messages of a long history without holding it in memory.

    A message that fits several providers is read like the message before it. Raise `InvalidValue` as `parse` does.
    """
    entries = (entry for n, value in enumerate(values) for entry in _entries(value, f"messages[{n}]"))
    return _messages(((_provider(entry), entry) for entry in entries), "openai")


def format_messages(messages: Sequence[Message], provider: Provider) -> list[dict[str, Any]]:
    """Return the messages in a provider's shape, as new values. `anthropic.system` returns the prompt for Anthropic."""
    write = _FORMATS.get(provider)
    if write is None:
        raise invalid_value("provider", provider, f"known are {', '.join(_FORMATS)}")
    return write(messages)


def format_request(messages: Sequence[Message], provider: Provider) -> list[dict[str, Any]]:
    """Return the messages like `format_messages`, as the provider accepts them in a request."""
    written = format_messages(messages, provider)
    if provider == "openai" and not any(m.tool_calls or m.name or m.tool_call_id is not None for m in messages):
        return written  # the usual case
    return make_legal(written, provider)


def _entries(value: object, place: str) -> list[Entry]:
    if isinstance(value, Message):
        return [Entry(place, read_message(value, place), {}, value.origin)]
    copy = to_plain_json(value, place)
    if not isinstance(copy, dict):
        raise invalid_value(place, value, _ACCEPTED)
    return unwrap_response(copy, place) or [Entry(place, copy, {})]


def _provider(entry: Entry) -> Provider | None:
    if isinstance(entry.value, Message):
        return entry.provider
    if not isinstance(entry.value, dict):
        raise invalid_value(entry.place, entry.value, "a message is a dict")
    return entry.provider or detect_provider(entry.value, entry.place)


def _messages(detected: Iterable[tuple[Provider | None, Entry]], provider: Provider) -> Iterator[Message]:
    """Yield the messages of the entries. An entry without a provider is read like the one before it."""

    def parser_of(pair: tuple[Provider | None, Entry]) -> Parser:
        nonlocal provider
        provider = pair[0] or provider
        return _parse_own if isinstance(pair[1].value, Message) else _PARSERS[provider]

    for parse_entries, pairs in groupby(detected, key=parser_of):
        yield from parse_entries(entry for _, entry in pairs)


def _parse_own(entries: Iterable[Entry]) -> Iterator[Message]:
    return (structs.replace(entry.value, index=-1) for entry in entries)
