"""MessageHandle: the most used operations on messages, for `quire.Conversation` and `quire.Context`."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from quire.conversation import arrivals, edits
from quire.conversation.batches import ImportReport, Modification, Temporary
from quire.conversation.importing import Importer
from quire.conversation.sequence import Item, Messages, items, turns_of
from quire.conversation.turn import Turn, check_id
from quire.core.plan import Plan
from quire.core.records import SENT_TOOLS, NoteRecord, SentView
from quire.core.state import State
from quire.errors import InvalidValue, QuireError, names_options, short_repr
from quire.model.clock import check_moment
from quire.model.messages import Message, Provider, ToolCall
from quire.model.text import MAX_NAME, check_one_line, check_text
from quire.providers import parse
from quire.providers.plain_json import to_plain_json
from quire.system.handle import Handle
from quire.system.rules import check_bool


class AnyView(Protocol):
    """A view that a reply answers: a `quire.View`. This package does not import that class."""

    parts: Any


Answered = tuple[SentView | None, NoteRecord | None]
"""The stored form of the view that a reply answers, and a note of the tools that were sent with it if they changed."""
Answer = Callable[[State, int, Message, AnyView | None], Answered]
"""Returns an `Answered` for the state, the number of the new reply, the reply, and the view (None: the last one)."""


@names_options
class MessageHandle(Handle):
    """Adding, reading and editing messages."""

    _answer: Answer | None = None

    def system(self, text: str, name: str | None = None) -> int:
        """Set the system prompt, or a further one by its name; return its index. The same text changes nothing."""
        with self._engine.clean_errors(text):
            content = check_text(text, "text")
        label = None if name is None else check_one_line(name, "name", MAX_NAME, empty=False)
        message = Message(role="system", content=content, name=label)
        return self._engine.run(self.actor, "system", _set_prompt, message)

    def user(self, content: Any, *, id: str | None = None, at: datetime | None = None) -> int:
        """Add a user message: text, or a list of parts in any provider's shape. Return its message index.

        See `add` for `id` and `at`.
        """
        return self._add_message("user", content, None, id, at)

    def assistant(
        self,
        content: Any = None,
        tool_calls: Iterable[Any] | None = None,
        *,
        view: AnyView | None = None,
        id: str | None = None,
        at: datetime | None = None,
    ) -> int:
        """Add an assistant message, with or without tool calls in any provider's shape. Return its message index.

        See `add` for `view`, `id` and `at`.
        """
        if tool_calls is None:
            return self._add_message("assistant", content, view, id, at)
        if isinstance(tool_calls, str | bytes | Mapping) or not isinstance(tool_calls, Iterable):
            raise InvalidValue(f"is {short_repr(tool_calls)}; a list of calls is needed.", argument="tool_calls")
        calls = [_as_call(call) for call in tool_calls]
        return self.add({"role": "assistant", "content": content, "tool_calls": calls}, view=view, id=id, at=at)

    def tool_result(self, call_id: str, content: Any, *, id: str | None = None, at: datetime | None = None) -> int:
        """Add the result of a tool call, early or late; return its index. The same result again changes nothing.

        The content is text, a list of parts, or a dict, which is stored as JSON. See `add` for `id` and `at`.
        """
        if isinstance(content, Mapping):
            content = _as_json(content)
        return self._add_message("tool", content, None, id, at, call_id)

    def add(
        self,
        message: Any,
        *,
        view: AnyView | None = None,
        id: str | None = None,
        at: datetime | None = None,
        provider: Provider | None = None,
    ) -> int:
        """Add a message, a list of them, or a response, as any provider's dicts or SDK objects: all of it or nothing.

        Returns the index of the last one.

        `view` is the view that a reply answers; give it if another handle rendered it. The default is the last view
        of this handle, if no message was added since. The reply is stored with the new texts at the end of that view
        (windows, recalled pages) and, if it has thinking, with a digest of the messages that were sent.

        A message with an `id` is added once: if a message in the conversation has this id, its index is returned,
        whatever the new text. Of several messages, the first has the id, and the others `id.2`, `id.3` and so on.

        `at` is the time of messages that have none of their own; without it, they have the time of their arrival.

        A dict of an unknown shape is refused. With a `provider`, dicts are read in the form of this provider, and items
        of an unknown type are kept as they are. Items of SDK objects are always kept.
        """
        with self._engine.clean_errors(message):
            messages = parse(message, provider)
            if not messages:
                raise InvalidValue(f"There is no message in {short_repr(message)}.")
        return self._add_parsed(messages, view, id, at)

    def import_messages(
        self,
        messages: Iterable[Any],
        *,
        progress: Callable[[ImportReport], None] | None = None,
        provider: Provider | None = None,
    ) -> ImportReport:
        """Add a whole history, even a damaged one, in one pass; return what was imported and what was wrong.

        A message keeps the time that it has in the source: `Message.at`, or a key `at`, `timestamp`, `created_at`,
        `created` or `time` of a dict. See `add` for `provider`.

        It is committed in parts of 500 messages; `progress` is called after each. If the iterable itself fails, the
        messages before the failure stay.
        """
        if progress is not None and not callable(progress):
            raise InvalidValue(
                f"is {short_repr(progress)}; a function that takes an ImportReport is needed.", argument="progress"
            )
        importer = Importer(messages, self._engine.redaction, provider)
        for part in importer.parts():
            self._engine.retry(partial(self._engine.run, self.actor, "import_messages", importer.plan_part, part))
            importer.confirm_part()
            if progress is not None:
                progress(self._engine.read(importer.report))
        return self._engine.read(importer.finish)

    def pending_calls(self) -> list[ToolCall]:
        """Return the calls of the newest exchange that have no result yet."""
        return self._engine.read(arrivals.pending_calls)

    def close_calls(self) -> list[ToolCall]:
        """Stop waiting for the newest exchange's results; return the calls without one. Late ones are still added."""
        return self._run(arrivals.close_calls)

    def messages(self, all: bool = False) -> Messages:
        """Return the messages in their current order; with `all` every message by index, deleted ones too."""
        return Messages(self._engine.read, everything=check_bool(all, "all"))

    def turns(self) -> Iterator[list[Message]]:
        """Yield the turns in order, each as a list: a user message and everything up to the next user message.

        Messages before the first user message, such as prompts, are in no turn.
        """
        return turns_of(self.messages())

    def items(self, active: bool = False) -> Iterator[Item]:
        """Yield prompts, exchanges and summaries by seq. With `active`, leave out those that an edit removed."""
        check_bool(active, "active")
        found = self._engine.read(lambda state: items(state, active=active))
        return self._engine.stream(found, lambda _, item: item)

    def delete(self, indices: int | Iterable[int]) -> Modification:
        """Take messages out of the conversation. They stay readable with `messages(all=True)`; `undo` restores them."""
        return self._run(edits.delete, indices)

    def replace(self, indices: int | Iterable[int], data: Any) -> Modification:
        """Replace messages by another one, or several, in any provider's shape."""
        with self._engine.clean_errors(data):
            messages = edits.messages_of(data)
        return self._run(edits.replace, indices, messages)

    def compress(self, indices: int | Iterable[int], summary: str | None = None) -> Modification:
        """Replace every run of neighbouring messages by a summary. Without `summary`, it is extracted from them."""
        return self._run(edits.compress, indices, summary)

    @contextmanager
    def temporary(self) -> Iterator[None]:
        """Run a block; its messages and edits leave the conversation when it ends, also after an error.

        They are visible only through this handle, and a process that dies in the block leaves no trace. Other pages
        written in the block, such as notes, stay.
        """
        block = Temporary(self._engine, self.actor)
        turn = self._engine.turn
        try:
            with nullcontext() if turn is None else turn.without_key():
                yield
        except BaseException as error:
            try:
                block.end()
            except QuireError as second:
                error.add_note(f"What was done in the temporary block could not be stored: {second}")
            raise
        block.end()

    def _add_message(
        self,
        role: Any,
        content: Any,
        view: AnyView | None,
        message_id: str | None,
        at: datetime | None,
        call_id: str | None = None,
    ) -> int:
        call = {"tool_call_id": call_id} if role == "tool" else {}
        if not isinstance(content, str):
            return self.add({"role": role, "content": content, **call}, view=view, id=message_id, at=at)
        with self._engine.clean_errors(content):
            text = check_text(content, "content")
        call_id = check_text(call_id, "call_id") if call else None
        return self._add_parsed([Message(role=role, content=text, tool_call_id=call_id)], view, message_id, at)

    def _add_parsed(
        self,
        messages: Sequence[Message],
        view: AnyView | None = None,
        message_id: str | None = None,
        at: datetime | None = None,
    ) -> int:
        """Add messages in one commit; return the index of the last. In a turn with a key, each gets an id."""
        if at is not None:
            check_moment(at, "at")
            messages = [message if message.at is not None else replace(message, at=at) for message in messages]
        active = self._engine.turn
        turn = active if message_id is None and isinstance(active, Turn) and active.is_current else None
        ids: list[str] = []
        if message_id is not None:
            name = check_id(message_id)
            ids = [name, *(f"{name}.{n}" for n in range(2, len(messages) + 1))]
        elif turn is not None and turn.key:
            ids = [turn.next_id(n) for n in range(len(messages))]
        operation = messages[0].role if len(messages) == 1 else "add"
        index = self._engine.run(self.actor, operation, _receive_all, messages, self._answer, view, ids)
        if turn is not None:
            turn.added += len(messages)
        return index


def _set_prompt(plan: Plan, message: Message) -> int:
    return plan.message_index(arrivals.set_prompt(plan, message))


def _receive_all(
    plan: Plan, messages: Sequence[Message], answer: Answer | None, view: AnyView | None, ids: Sequence[str]
) -> int:
    """Plan the arrival of several messages; return the index of the last. The first reply answers the view.

    A message with an id that a message in the conversation has is not added.
    """
    if view is not None and not hasattr(view, "parts"):
        raise InvalidValue(f"is {short_repr(view)}; a View is needed.", argument="view")
    number = -1
    for place, message in enumerate(messages):
        known = arrivals.find_message(plan, ids[place]) if ids else None
        if known is not None:
            number = known
            continue
        sent = tools = None
        if answer is not None and message.role == "assistant":
            (sent, tools), answer = answer(plan.state, plan.next_message, message, view), None
        if tools is not None:
            plan.notes[SENT_TOOLS] = tools
        new = plan.next_message
        number = arrivals.receive(plan, message)
        if sent is not None:
            plan.set_sent(number, sent)
        if ids and number >= new:  # a repeated result has the number of the first one and gets no id
            plan.set_id(number, ids[place])
    return plan.message_index(number)


def _as_call(call: Any) -> Any:
    if not isinstance(call, ToolCall):
        return call
    arguments: Any = call.arguments
    text = _as_json(arguments) if isinstance(arguments, Mapping) else arguments
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": text}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}


def _as_json(value: Mapping[str, Any]) -> str:
    return json.dumps(to_plain_json(value, "content"), ensure_ascii=False)
