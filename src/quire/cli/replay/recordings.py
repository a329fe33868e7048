"""Recorded conversations from files and stores, and their facts: which of them a request or a search still reaches.

Each is imported into a context first, as quire would store it. A call id that occurs twice is made distinct, as in a
view: the replay compares how requests are built, not how they were recorded.
"""

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

import quire
from quire import Context, DetailPage, Message, ToolCall
from quire.cli.command import open_context
from quire.errors import InvalidValue
from quire.formats.files import is_store, read_log
from quire.formats.log import LogFile, LoggedConversation
from quire.storage.urls import mask_address

_HITS = 5
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:-]{2,}[A-Za-z0-9]")
"""Four or more characters; one with a digit is an identifier, an amount, a date or a time."""

_WORD = re.compile("[A-Za-z0-9_]")


class Reach(NamedTuple):
    """The number of facts in the messages that are sent, of further facts that a search finds, and of all facts."""

    shown: int = 0
    found: int = 0
    total: int = 0

    def __add__(self, other: "Reach") -> "Reach":  # type: ignore[override]
        return Reach(*(one + more for one, more in zip(self, other, strict=True)))


def extract_facts(messages: Iterable[Message]) -> list[str]:
    """Return the distinct facts of messages: identifiers, amounts, dates, times."""
    tokens = (match.group() for text in message_texts(messages) for match in _TOKEN.finditer(text))
    return list(dict.fromkeys(token for token in tokens if any(map(str.isdigit, token))))


def measure_reach(
    sought: Sequence[tuple[str, str]], messages: Iterable[Message], context: Context | None = None
) -> Reach:
    """Count the (query, answer) pairs with the answer in the messages, or on a page that the query finds."""
    text = "\n".join(message_texts(messages))
    missing = [(query, answer) for query, answer in sought if not contains_fact(text, answer)]
    found = sum(_finds(context, query, answer) for query, answer in missing) if context is not None else 0
    return Reach(len(sought) - len(missing), found, len(sought))


def contains_fact(text: str, fact: str) -> bool:
    """Return whether a text contains a fact that is not part of a longer number or name."""
    place = text.find(fact)
    while place >= 0:
        end = place + len(fact)
        if not _WORD.match(text, place - 1, place) and not _WORD.match(text, end):
            return True
        place = text.find(fact, place + 1)
    return False


def message_texts(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the texts of messages and the arguments of their calls."""
    for message in messages:
        yield message.text
        for call in message.tool_calls:
            yield call.arguments


def _finds(context: Context, query: str, answer: str) -> bool:
    """Return whether one of the first hits of a query contains the answer."""
    pages = context.pages
    for hit in pages.find(query, _HITS):
        body = pages.detail(hit.index) if isinstance(pages.get_page(hit.index), DetailPage) else ""
        if contains_fact(f"{hit.name}\n{hit.description}\n{body}", answer):
            return True
    return False


class Recording(NamedTuple):
    """A conversation: its name, its prompt if it has one, and the other messages."""

    name: str
    prompt: Message | None
    messages: Sequence[Message]

    @property
    def calls(self) -> int:
        """The number of model calls."""
        return sum(message.role == "assistant" for message in self.messages)


class RecordingSet(NamedTuple):
    """The conversations that have a model call, and the number of those without."""

    conversations: Sequence[Recording]
    silent: int

    @property
    def messages(self) -> int:
        """The number of messages, without prompts."""
        return sum(len(recording.messages) for recording in self.conversations)

    @property
    def calls(self) -> int:
        """The number of model calls."""
        return sum(recording.calls for recording in self.conversations)


def read_recordings(
    sources: Sequence[str],
    number: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    *,
    context: str | None = None,
) -> RecordingSet:
    """Read all conversations of files, or the one with a number, counted from 1 over all files.

    For a store, it is the conversation of the context that is named, or of the default one. `progress` is called with
    the number of conversations read. Raises `InvalidValue` if a file cannot be read, the number is out of range, or no
    conversation has a model call.
    """
    if context is not None and not any(map(is_store, sources)):
        fact = f"is {context!r}, but {', '.join(map(repr, sources))} is not a store."
        raise InvalidValue(fact, argument="context")
    logs = [_read_store(source, context) if is_store(source) else read_log(source) for source in sources]
    names = ", ".join(log.source for log in logs)
    conversations = [conversation for log in logs for conversation in log.conversations]
    selected = conversations if number is None else [LogFile(names, conversations, []).select(number)]
    recordings: list[Recording] = []
    for conversation in selected:
        recordings.append(_record(conversation))
        progress(len(recordings))
    with_calls = [recording for recording in recordings if recording.calls]
    if not with_calls:
        raise InvalidValue(f"{names!r} holds no message of an assistant, so there is no model call to replay.")
    return RecordingSet(with_calls, len(recordings) - len(with_calls))


def join_recordings(recordings: RecordingSet) -> RecordingSet:
    """Return all conversations as one, in their order, under the prompt of the first."""
    first, *_ = recordings.conversations
    messages = [message for one in recordings.conversations for message in one.messages if message.role != "system"]
    return RecordingSet([Recording(first.name, first.prompt, make_call_ids_distinct(messages))], recordings.silent)


def _read_store(where: str, name: str | None) -> LogFile:
    with open_context(Namespace(where=where, context=name)) as context:
        return LogFile(mask_address(where), [LoggedConversation(context.name, list(context.messages()))], [])


def _record(conversation: LoggedConversation) -> Recording:
    with quire.open("memory:") as context:
        context.import_messages(conversation.messages)
        messages = list(context.messages())
    has_prompt = bool(messages) and messages[0].role == "system"
    others = make_call_ids_distinct(messages[has_prompt:])
    return Recording(conversation.name, messages[0] if has_prompt else None, others)


def make_call_ids_distinct(messages: Sequence[Message]) -> Sequence[Message]:
    """Give a new id to every call with an id that was used before, and to its result.

    Some models number their calls from the start in every response, and the compared strategies find a call by its id.
    """
    ids = [call.id for message in messages for call in message.tool_calls]
    if len(set(ids)) == len(ids):
        return messages
    times: dict[str, int] = {}
    renamed: dict[str, str] = {}
    changed: list[Message] = []
    for message in messages:
        if message.tool_calls:
            calls = tuple(_with_new_id(call, times) for call in message.tool_calls)
            renamed |= {old.id: new.id for old, new in zip(message.tool_calls, calls, strict=True)}
            message = message if calls == message.tool_calls else replace(message, tool_calls=calls, raw=None)
        elif message.role == "tool":
            known = renamed.get(message.tool_call_id or "", message.tool_call_id)
            message = message if known == message.tool_call_id else replace(message, tool_call_id=known, raw=None)
        changed.append(message)
    return changed


def _with_new_id(call: ToolCall, times: dict[str, int]) -> ToolCall:
    """Return the call with an id that no call before it has. `times` counts the uses of each id."""
    fresh = call.id
    while fresh in times:
        times[call.id] += 1
        fresh = f"{call.id}_{times[call.id]}"
    times[fresh] = 1
    return call if fresh == call.id else replace(call, id=fresh)
