"""The conversations that are replayed: from files, each with its prompt, as a context that took them in has them.

A call whose id another one had before gets one of its own, as in a view: what is compared is how requests are made up,
not how they were recorded.
"""

from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import NamedTuple

import quire
from quire import Message
from quire.cli.histories import Conversation, History, is_store, read_history
from quire.cli.opening import context_of
from quire.errors import InvalidValue
from quire.providers.common import with_distinct_calls
from quire.storage.urls import masked


class Recorded(NamedTuple):
    """A conversation: its name, its prompt if it has one, and the other messages."""

    name: str
    prompt: Message | None
    messages: Sequence[Message]

    @property
    def calls(self) -> int:
        """How many model calls it took."""
        return sum(message.role == "assistant" for message in self.messages)


class Recording(NamedTuple):
    """What was read: the conversations that have a model call, and how many have none."""

    conversations: Sequence[Recorded]
    silent: int

    @property
    def messages(self) -> int:
        """The messages of all, without the prompts."""
        return sum(len(recorded.messages) for recorded in self.conversations)

    @property
    def calls(self) -> int:
        """The model calls of all."""
        return sum(recorded.calls for recorded in self.conversations)


def read_recording(
    sources: Sequence[str],
    number: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    *,
    context: str | None = None,
) -> Recording:
    """All conversations of some files, or the one with a number, counted from 1 through all files.

    A store stands for the conversation of a context in it: the one named, or the one that other commands take.
    `progress` hears of every conversation. Raises `InvalidValue` where a file cannot be read, the number names none,
    or there is no model call in any.
    """
    if context is not None and not any(map(is_store, sources)):
        raise InvalidValue(f"context is {context!r}, but {', '.join(map(repr, sources))} is no store.")
    histories = [_kept(source, context) if is_store(source) else read_history(source) for source in sources]
    names = ", ".join(history.source for history in histories)
    found = [conversation for history in histories for conversation in history.conversations]
    taken = found if number is None else [History(names, found, []).chosen(number)]
    recorded: list[Recorded] = []
    for conversation in taken:
        recorded.append(_recorded(conversation))
        progress(len(recorded))
    spoken = [one for one in recorded if one.calls]
    if not spoken:
        raise InvalidValue(f"{names!r} holds no message of an assistant's, and so no model call to replay.")
    return Recording(spoken, len(recorded) - len(spoken))


def joined(recording: Recording) -> Recording:
    """All conversations as one, in their order, under the prompt of the first."""
    first, *_ = recording.conversations
    messages = [message for one in recording.conversations for message in one.messages if message.role != "system"]
    return Recording([Recorded(first.name, first.prompt, with_distinct_calls(messages))], recording.silent)


def _kept(where: str, name: str | None) -> History:
    """The conversation that a context in a store has."""
    with context_of(Namespace(where=where, context=name)) as context:
        return History(masked(where), [Conversation(context.name, list(context.messages()))], [])


def _recorded(conversation: Conversation) -> Recorded:
    with quire.open("memory:") as context:
        context.import_messages(conversation.messages)
        messages = list(context.messages())
    has_prompt = bool(messages) and messages[0].role == "system"
    others = with_distinct_calls(messages[has_prompt:])
    return Recorded(conversation.name, messages[0] if has_prompt else None, others)
