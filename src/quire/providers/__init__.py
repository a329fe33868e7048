"""Providers: messages in the shapes of OpenAI chat, OpenAI Responses and Anthropic, one module each.

`parse` reads messages of any provider, `format_messages` writes them. A message is written for its own provider exactly
as it was read, and for another one as faithfully as the shape of that provider allows. `format_request` writes messages
to be sent: names and ids that a provider refuses are spelled differently.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from msgspec import structs

from quire.model.clock import take_time
from quire.model.messages import Message, Provider, Role, ToolCall
from quire.model.text import is_unicode
from quire.providers import anthropic, openai, responses
from quire.providers.detection import Entry, detect_framework, detect_object, detect_provider, unwrap_response
from quire.providers.legal_form import is_legal_chat, make_legal
from quire.providers.originals import read_message
from quire.providers.parts import check_role, kind_of
from quire.providers.plain_json import invalid_value, to_plain_json

__all__ = ["format_messages", "format_request", "parse", "parse_each"]

_ACCEPTED = "give a message as a dict or an SDK object, a list of them, or a whole response"
_TIME = "\0time"
"""The key in `meta` for the time of a record while it is read."""
Parser = Callable[[Iterable[Entry]], Iterator[Message]]
_PARSERS: Mapping[Provider, Parser] = {
    "openai": openai.parse,
    "responses": responses.parse,
    "anthropic": anthropic.parse,
}
_PLAIN_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
_FORMATS: Mapping[str, Callable[[Sequence[Message]], list[dict[str, Any]]]] = {
    "openai": openai.format,
    "responses": responses.format,
    "anthropic": anthropic.format,
}


def parse(value: object, provider: Provider | None = None) -> list[Message]:
    """Return the messages of a dict, an SDK object, a list of them or a whole response, in order.

    A message that fits several providers is read like the first message of the list that fits only one. With a
    `provider`, dicts are read in its form, and items of a new type stay as they are. Raise `InvalidValue`, which names
    the value that is not a message.
    """
    given = _check_provider(provider)
    if isinstance(value, list | tuple):
        entries = [entry for n, inner in enumerate(value) for entry in _entries(inner, f"messages[{n}]", given)]
    elif given is None and (plain := _read_plain(value)) is not None:
        return [plain]
    else:
        entries = _entries(value, "message", given)
    detected = [(_provider(entry), entry) for entry in entries]
    if len(detected) == 1:  # the usual case
        return list(_parser_of(entries[0], detected[0][0] or "openai")(entries))
    first = next((provider for provider, _ in detected if provider), None)
    return list(_messages(detected, first or "openai"))


def parse_each(values: Iterable[object], provider: Provider | None = None) -> Iterator[Message]:
    """Yield the messages of a long history without holding it in memory, with the times that it gives them.

    A message that fits several providers is read like the message before it. Raise `InvalidValue` as `parse` does.
    """
    given = _check_provider(provider)
    entries = (entry for n, value in enumerate(values) for entry in _dated_entries(value, f"messages[{n}]", given))
    return map(_set_time, _messages(((_provider(entry), entry) for entry in entries), "openai"))


def format_messages(messages: Sequence[Message], provider: Provider) -> list[dict[str, Any]]:
    """Return the messages in a provider's shape, as new values. `anthropic.system` returns the prompt for Anthropic."""
    write = _FORMATS.get(provider)
    if write is None:
        raise invalid_value("provider", provider, f"known are {', '.join(_FORMATS)}")
    return write(messages)


def format_request(messages: Sequence[Message], provider: Provider) -> list[dict[str, Any]]:
    """Return the messages like `format_messages`, as the provider accepts them in a request."""
    written = format_messages(messages, provider)
    if provider != "openai":
        return make_legal(written, provider)
    for message in messages:
        is_plain = not message.tool_calls and not message.name and message.tool_call_id is None and message.raw is None
        if not is_plain and not is_legal_chat(message):
            return make_legal(written, provider)
    return written  # the usual case


def _check_provider(provider: Provider | None) -> Provider | None:
    if provider is not None and (not isinstance(provider, str) or provider not in _PARSERS):
        raise invalid_value("provider", provider, f"known are {', '.join(_PARSERS)}")
    return provider


def _read_plain(value: object) -> Message | None:
    """Return the message of a usual chat dict, as the general parser reads it; None for any other value.

    A usual dict has a role, a text, and at most the calls of an assistant or the id that a result answers.
    """
    if type(value) is not dict:
        return None
    role, text = value.get("role"), value.get("content")
    if type(role) is not str or type(text) is not str or not is_unicode(text):
        return None
    if len(value) == 2:
        known = _PLAIN_ROLES.get(role)
        return None if known is None else Message(role=known, content=text)
    if role == "tool":
        return _read_plain_result(value, text)
    calls = value.get("tool_calls") if role == "assistant" and len(value) == 3 else None
    read = [_read_plain_call(call) for call in calls] if type(calls) is list else []
    if not read or None in read:
        return None
    return Message(role="assistant", content=text, tool_calls=tuple(filter(None, read)))


def _read_plain_result(value: dict[str, Any], text: str) -> Message | None:
    """Return a usual result of a tool, or None. Some programs write the name of the tool into it."""
    answered, name = value.get("tool_call_id"), value.get("name")
    if type(answered) is not str or not answered.isascii() or len(value) != (3 if name is None else 4):
        return None
    if name is None:
        return Message(role="tool", content=text, tool_call_id=answered)
    is_plain = type(name) is str and name != "" and name.isascii()
    return Message(role="tool", content=text, tool_call_id=answered, name=name) if is_plain else None


def _read_plain_call(call: object) -> ToolCall | None:
    """Return a usual tool call, or None."""
    if type(call) is not dict or len(call) != 3 or call.get("type") != "function":
        return None
    called, call_id = call.get("function"), call.get("id")
    if type(called) is not dict or len(called) != 2 or type(call_id) is not str or not call_id.isascii():
        return None
    name, arguments = called.get("name"), called.get("arguments")
    if type(name) is not str or not name or not name.isascii() or type(arguments) is not str:
        return None
    return ToolCall(call_id, name, arguments) if is_unicode(arguments) else None


def _entries(value: object, place: str, given: Provider | None) -> list[Entry]:
    if isinstance(value, Message):
        message = read_message(value, place)
        for n, part in enumerate(message.content if isinstance(message.content, list) else ()):
            check_role(kind_of(part), f"{place}.content[{n}]", message.role)
        return [Entry(place, message, {}, value.origin)]
    is_usual = type(value) is dict and "role" in value and "type" not in value
    if not is_usual and (found := detect_framework(value)) is not None:
        from quire.providers import langchain, pydantic_ai  # late: most programs do not need them

        read = langchain.read if found == "langchain" else pydantic_ai.read
        return [Entry(place, message, {}, message.origin) for message in read(value, place)]
    copy = to_plain_json(value, place)
    if not isinstance(copy, dict):
        raise invalid_value(place, value, _ACCEPTED)
    if given is None and not isinstance(value, Mapping):
        given = detect_object(copy)
    return unwrap_response(copy, place) or [Entry(place, copy, {}, given)]


def _dated_entries(value: object, place: str, given: Provider | None) -> list[Entry]:
    """Return the entries of a record that may have a time, with this time in their `meta`."""
    plain, moment = take_time(value) if isinstance(value, Mapping) else (value, None)
    entries = _entries(plain, place, given)
    if moment is None:
        return entries
    return [
        entry._replace(value=structs.replace(entry.value, at=entry.value.at or moment))
        if isinstance(entry.value, Message)
        else entry._replace(meta={**entry.meta, _TIME: moment})
        for entry in entries
    ]


def _set_time(message: Message) -> Message:
    """Return a message with the time of its record."""
    if _TIME not in message.meta:
        return message
    meta = {key: value for key, value in message.meta.items() if key != _TIME}
    return structs.replace(message, meta=meta, at=message.meta[_TIME])


def _provider(entry: Entry) -> Provider | None:
    if isinstance(entry.value, Message):
        return entry.provider
    if not isinstance(entry.value, dict):
        raise invalid_value(entry.place, entry.value, "a message is a dict")
    return entry.provider or detect_provider(entry.value, entry.place)


def _messages(detected: Iterable[tuple[Provider | None, Entry]], provider: Provider) -> Iterator[Message]:
    """Yield the messages of the entries. An entry without a provider is read like the one before it."""
    for parse_entries, pairs in groupby(_with_parsers(detected, provider), key=itemgetter(0)):
        yield from parse_entries(entry for _, entry in pairs)


def _with_parsers(
    detected: Iterable[tuple[Provider | None, Entry]], provider: Provider
) -> Iterator[tuple[Parser, Entry]]:
    for found, entry in detected:
        provider = found or provider
        yield _parser_of(entry, provider), entry


def _parser_of(entry: Entry, provider: Provider) -> Parser:
    return _parse_own if isinstance(entry.value, Message) else _PARSERS[provider]


def _parse_own(entries: Iterable[Entry]) -> Iterator[Message]:
    return (structs.replace(entry.value, index=-1) for entry in entries)
