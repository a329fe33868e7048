"""Providers: messages in the shapes of OpenAI chat, OpenAI Responses and Anthropic, one module each.

`parse` reads messages of any provider, `format_messages` writes them. A message is written for its own provider exactly
as it was read, and for another one as faithfully as the shape of that provider allows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from msgspec import structs

from quire.model.messages import Message, Provider
from quire.providers import anthropic, openai, parts, responses
from quire.providers.common import Entry, detect_provider, invalid_value, to_plain_json, unwrap_response
from quire.providers.responses import group_items

__all__ = ["format_messages", "parse", "parse_each"]

_ACCEPTED = "give a message as a dict or an SDK object, a list of them, or a whole response"
_PARSERS: Mapping[str, Callable[[dict[str, Any], str], list[Message]]] = {
    "openai": openai.parse,
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


def _entries(value: object, place: str) -> list[Entry]:
    if isinstance(value, Message):
        return [Entry(place, parts.read_message(value, place), {}, value.origin)]
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
    for known, group in groupby(_assign_parsers(detected, provider), key=itemgetter(0)):
        found = (entry for _, entry in group)
        if known == "quire":
            yield from (structs.replace(entry.value, index=-1) for entry in found)
        elif known == "responses":
            yield from map(responses.parse_run, group_items(found))
        else:
            for place, value, meta, _ in found:
                messages = _PARSERS[known](value, place)
                yield from (structs.replace(message, meta=meta) for message in messages) if meta else messages


def _assign_parsers(
    detected: Iterable[tuple[Provider | None, Entry]], provider: Provider
) -> Iterator[tuple[str, Entry]]:
    """Yield the entries with the name of their parser. An entry without a provider gets that of the one before."""
    for own_provider, entry in detected:
        provider = own_provider or provider
        yield "quire" if isinstance(entry.value, Message) else provider, entry
