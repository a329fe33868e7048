"""Recorded conversations from files and stores.

Each is imported into a context first, as quire would store it. A call id that occurs twice is made distinct, as in a
view: the replay compares how requests are built, not how they were recorded.
"""

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

import quire
from quire import Message, ToolCall
from quire.cli.command import open_context
from quire.errors import InvalidValue
from quire.formats.files import is_store, read_log
from quire.formats.log import LogFile, LoggedConversation
from quire.storage.urls import mask_address


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
