"""Conversation: add, read and edit the messages of a context."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from msgspec.structs import replace

from quire.conversation import arrivals, batches, edits
from quire.conversation.batches import Cleanup, ImportReport, MarkMap, Modification, Temporary
from quire.conversation.edits import cleanup, messages_of, planner_of
from quire.conversation.importing import Importer
from quire.conversation.sequence import (
    Item,
    Messages,
    date_messages,
    items,
    newest_numbers,
    numbers_after,
    read_messages,
    turns_of,
)
from quire.core.engine import Engine, Transaction
from quire.core.plan import Plan
from quire.core.records import SENT_TOOLS, NoteRecord, SentView
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, NoSuchPage, QuireError, names_options, short_repr
from quire.model.clock import check_moment
from quire.model.messages import Message, Provider, ToolCall
from quire.model.pages import Mark, PageIndex
from quire.model.text import MAX_NAME, check_one_line, check_text
from quire.providers import parse
from quire.providers.plain_json import to_plain_json
from quire.system.rules import check_bool, check_whole_number

Answered = tuple[SentView | None, NoteRecord | None]
"""The stored form of the view that a reply answers, and a note of the tools that were sent with it if they changed."""
Answer = Callable[[State, int, Message, Any], Answered]
"""Returns an `Answered` for the state, the number of the new reply, the reply, and the view (None: the last one)."""
_NOTHING: Answered = (None, None)


@names_options
class Conversation:
    """The messages of the conversation segment: adding, reading, editing, batches.

    An exchange is one page: a message without calls, or an assistant message with its calls and all their results.
    Message indices follow the order of arrival and never shift; only `cleanup` renumbers them.
    """

    def __init__(self, engine: Engine, actor: str, answer: Answer | None = None) -> None:
        self.actor = check_one_line(actor, "actor", 100, empty=False)
        self._engine = engine
        self._answer = answer

    def __repr__(self) -> str:
        return f"<Conversation of {self.context!r}>"

    @property
    def context(self) -> str:
        """The name of this context in its storage."""
        return self._engine.state.context

    def acting_as(self, actor: str) -> "Conversation":
        """Return the same conversation under another actor's name in the journal."""
        return Conversation(self._engine, actor, self._answer)

    # Adding

    def system(self, text: str, name: str | None = None) -> int:
        """Set the system prompt, or a further one by its name; return its index. The same text changes nothing."""
        with self._engine.clean_errors(text):
            content = check_text(text, "text")
        label = None if name is None else check_one_line(name, "name", MAX_NAME, empty=False)
        message = Message(role="system", content=content, name=label)
        return self._engine.run(self.actor, "system", _set_prompt, message)

    def user(
        self,
        content: Any,
        *,
        id: str | None = None,  # noqa: A002 - a name of the public API
        at: datetime | None = None,
    ) -> int:
        """Add a user message: text, or a list of parts in any provider's shape; return its message index.

        See `add` for `id` and `at`.
        """
        return self._add_message("user", content, None, id, at)

    def assistant(
        self,
        content: Any = None,
        tool_calls: Iterable[Any] | None = None,
        *,
        view: object | None = None,
        id: str | None = None,  # noqa: A002 - a name of the public API
        at: datetime | None = None,
    ) -> int:
        """Add an assistant message, optionally with tool calls in any provider's shape; return its index.

        `view` is the view that it answers, if that is not the last one of this handle. See `add` for `id` and `at`.
        """
        if tool_calls is None:
            return self._add_message("assistant", content, view, id, at)
        if isinstance(tool_calls, str | bytes | Mapping) or not isinstance(tool_calls, Iterable):
            raise InvalidValue(f"is {short_repr(tool_calls)}; a list of calls is needed.", argument="tool_calls")
        calls = [_as_call(call) for call in tool_calls]
        return self.add({"role": "assistant", "content": content, "tool_calls": calls}, view=view, id=id, at=at)

    def tool_result(
        self,
        call_id: str,
        content: Any,
        *,
        id: str | None = None,  # noqa: A002 - a name of the public API
        at: datetime | None = None,
    ) -> int:
        """Add the result of a tool call, early or late; return its index. The same result again changes nothing.

        The content is text, a list of parts, or a dict, which is stored as JSON. See `add` for `id` and `at`.
        """
        if isinstance(content, Mapping):
            content = _as_json(content)
        if isinstance(content, str):
            with self._engine.clean_errors(content):
                text = check_text(content)
            message = Message(role="tool", content=text, tool_call_id=check_text(call_id, "call_id"))
            return self._receive("tool", (message,), None, id, at)
        return self.add({"role": "tool", "tool_call_id": call_id, "content": content}, id=id, at=at)

    def add(
        self,
        message: Any,
        *,
        view: object | None = None,
        id: str | None = None,  # noqa: A002 - a name of the public API
        at: datetime | None = None,
        provider: Provider | None = None,
    ) -> int:
        """Add a message, several, or a whole response, as any provider's dicts or SDK objects.

        Returns the index of the last one. Several are added together or not at all. `Context.add` explains the
        arguments.
        """
        with self._engine.clean_errors(message):
            messages = parse(message, provider)
            if not messages:
                raise InvalidValue(f"There is no message in {short_repr(message)}.")
        return self._add_parsed(messages, view, id, at)

    def _add_parsed(
        self,
        messages: Sequence[Message],
        view: object | None = None,
        message_id: str | None = None,
        at: datetime | None = None,
    ) -> int:
        """Add messages that a parser of quire returned, in one commit; return the index of the last one."""
        operation = messages[0].role if len(messages) == 1 else "add"
        return self._receive(operation, messages, view, message_id, at)

    def import_messages(
        self,
        messages: Iterable[Any],
        *,
        progress: Callable[[ImportReport], None] | None = None,
        provider: Provider | None = None,
    ) -> ImportReport:
        """Import a whole history, even a broken one, in one pass; return what was imported and what was wrong.

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

    # Open calls

    def pending_calls(self) -> list[ToolCall]:
        """Return the calls of the newest exchange without a result."""
        return self._engine.read(arrivals.pending_calls)

    def close_calls(self) -> list[ToolCall]:
        """Stop waiting for the newest exchange's results; return the calls without one. Late ones are still added."""
        return self._engine.run(self.actor, "close_calls", arrivals.close_calls)

    # Reading

    def messages(self, all: bool = False) -> Messages:  # noqa: A002 - a name of the public API
        """Return the messages in the conversation, in order; with `all` every message by index, marked ones too."""
        return Messages(self._engine.read, everything=check_bool(all, "all"))

    def turns(self) -> Iterator[list[Message]]:
        """Yield the turns in order, each as a list: a user message and everything up to the next user message.

        Messages before the first user message, such as prompts, are in no turn.
        """
        return turns_of(self.messages())

    def message(self, index: int) -> Message:
        """Return the message with this index, marked or not."""
        return self._engine.read(lambda state: read_messages(state, [edits.number_of(state, index)])[0])

    def messages_after(self, index: int | None = None, limit: int = 100) -> list[Message]:
        """Return the next messages in order, after this one or from the first on.

        Earlier messages are not read, so a long conversation can be read in parts. Raises `InvalidValue` if that
        message is no longer in the conversation.
        """
        most = check_whole_number(limit, "limit")

        def read(state: Any) -> list[Message]:
            after = None if index is None else edits.check_index(state, index)
            return read_messages(state, islice(numbers_after(state, after), most))

        return self._engine.read(read)

    def newest(self, limit: int = 100) -> list[Message]:
        """Return the last messages of the conversation, in order. Earlier messages are not read."""
        most = check_whole_number(limit, "limit")
        return self._engine.read(lambda state: read_messages(state, islice(newest_numbers(state), most))[::-1])

    def messages_on(self, page: PageIndex) -> list[Message]:
        """Return the messages of an exchange by its page; none for any other page. Raises `NoSuchPage`."""
        return self._engine.read(lambda state: read_messages(state, state.require_page(page).header.numbers))

    def entry_before(self, message: Message | int) -> int:
        """Return the seq of the last entry before a message was added.

        Raises `InvalidOperation` if an earlier message was added in the same entry.
        """
        return self._engine.read(lambda state: edits.entry_before(state, message))

    def date_messages(self, messages: Iterable[Message] | None = None) -> list[Message]:
        """Return messages, by default all of the conversation, with `at`: their own time, or that of their arrival.

        A message of a view that is not a message of the conversation has no time.
        """
        listed: list[Any] = [messages]
        if messages is None or isinstance(messages, Iterable):
            listed = list(self.messages() if messages is None else messages)
        for message in listed:
            if not isinstance(message, Message):
                raise InvalidValue(f"has {short_repr(message)}; a list of Message is needed.", argument="messages")
        return self._engine.read(lambda state: date_messages(state, listed))

    def prelude(self, index: int) -> list[str]:
        """Return the texts at the end of the view that a reply answers: windows and recalled pages."""

        def read(state: Any) -> list[str]:
            sent = state.message(edits.number_of(state, index)).sent
            return [] if sent is None else [piece.text for piece in sent.tail]

        return self._engine.read(read)

    def items(self, active: bool = False) -> Iterator[Item]:
        """Iterate over prompts, exchanges and summaries by seq; with `active` only over those in the conversation."""
        check_bool(active, "active")
        found = self._engine.read(lambda state: items(state, active=active))
        return self._engine.stream(found, lambda _, item: item)

    def page_of(self, index: int) -> PageIndex | None:
        """Return the page of a message; None if it was removed."""

        def look(state: Any) -> PageIndex | None:
            page = state.page_of(edits.number_of(state, index))
            return None if page is None else state.index(page.key)

        return self._engine.read(look)

    def mark_of(self, index: int) -> Mark:
        """Return why a message is not in the conversation; `Mark.NONE` if it is in the conversation."""
        return self._engine.read(lambda state: state.mark_of(edits.number_of(state, index)))

    def is_modified(self, index: int) -> bool:
        """Return True if an edit took the message out of the conversation."""
        return self.mark_of(index) is not Mark.NONE

    # Edits

    def insert(self, data: Any, at: int | None = None) -> Modification:
        """Insert messages at the end, or before message `at`; if `at` is inside an exchange, after that exchange."""
        with self._engine.clean_errors(data):
            messages = messages_of(data)
        return self._engine.run(self.actor, "insert", edits.insert, messages, at)

    def delete(self, indices: int | Iterable[int]) -> Modification:
        """Take messages out of the conversation. They stay readable with `messages(all=True)` until `cleanup`."""
        return self._engine.run(self.actor, "delete", edits.delete, indices)

    def replace(self, indices: int | Iterable[int], data: Any) -> Modification:
        """Replace messages by another one, or several."""
        with self._engine.clean_errors(data):
            messages = messages_of(data)
        return self._engine.run(self.actor, "replace", edits.replace, indices, messages)

    def compress(self, indices: int | Iterable[int], summary: str | None = None) -> Modification:
        """Replace every run of neighbouring messages by a summary. Without `summary`, it is extracted from them."""
        return self._engine.run(self.actor, "compress", edits.compress, indices, summary)

    def modify(self, operations: Sequence[Mapping[str, Any]]) -> list[Modification]:
        """Apply modifications given as dicts (`operation`, `indices`, `data`, `batch`): all of them or none."""
        if isinstance(operations, str | bytes | Mapping) or not isinstance(operations, Sequence):
            raise InvalidValue(f"is {short_repr(operations)}; a list of dicts is needed.", argument="operations")
        planned = []
        for n, value in enumerate(operations):
            with self._engine.clean_errors(operations), _name_place(f"operations[{n}]"):
                planned.append(planner_of(value, f"operations[{n}]"))
        with self._engine.lock:
            transaction = Transaction(self._engine)
            results: list[Modification] = []
            try:
                for n, (operation, plan) in enumerate(planned):
                    with _name_place(f"operations[{n}]"):
                        results.append(self._engine.run(self.actor, operation, plan))
                transaction.commit_all()
            except BaseException:
                transaction.discard()
                raise
            return results

    def cleanup(self, *, scrub: bool = False) -> Cleanup:
        """Destroy the messages that are not in the conversation and renumber the others.

        It is refused while a batch or a temporary block is open. Nothing before it can be undone afterwards. The
        messages leave the history and the search index too. Summaries and chapters that repeat their words stay, and
        forks keep their copies. With `scrub`, the store is rewritten without their bytes; otherwise the bytes stay in
        it until they are overwritten.
        """
        check_bool(scrub, "scrub")
        with self._engine.lock:
            if self._engine.transactions:  # the end of the block needs the pages that a cleanup would destroy
                raise InvalidOperation("Changes are held in memory inside a temporary block. Leave the block first.")
            done = self._engine.run(self.actor, "cleanup", cleanup)
            return _scrub(self._engine.state, done, scrub)

    # Batches

    def batch_start(self, boundary: int | None = None) -> Modification:
        """Open the next batch at a message index, by default at the end."""
        return self._engine.run(self.actor, "batch_start", batches.batch_start, boundary)

    def batch_end(self, target: int) -> Modification:
        """Go back to a batch: later messages leave the conversation, and later marks are undone."""
        return self._engine.run(self.actor, "batch_end", batches.batch_end, target)

    def batch_commit(self) -> Modification:
        """Close the current batch and keep its changes as part of the batch around it."""
        return self._engine.run(self.actor, "batch_commit", batches.batch_commit)

    def mark_map(self) -> MarkMap:
        """Return the messages in order of arrival and the open batches, as lists of indices."""
        return self._engine.read(batches.mark_map)

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

    def _add_message(self, role: Any, content: Any, view: object, message_id: str | None, at: datetime | None) -> int:
        if isinstance(content, str):  # the usual case needs no parser
            if self._engine.redaction is None:
                text = check_text(content, "content")
            else:
                with self._engine.clean_errors(content):
                    text = check_text(content, "content")
            return self._receive(role, (Message(role=role, content=text),), view, message_id, at)
        return self.add({"role": role, "content": content}, view=view, id=message_id, at=at)

    def _receive(
        self, operation: str, messages: Sequence[Message], view: object, message_id: str | None, at: datetime | None
    ) -> int:
        """Add messages in one commit; return the index of the last. In a turn with a key, each gets an id."""
        engine = self._engine
        if at is not None:
            check_moment(at, "at")
            messages = [message if message.at is not None else replace(message, at=at) for message in messages]
        turn = None
        if message_id is not None or engine.turn is not None:
            from quire.conversation.turn import Turn, check_id  # late: most messages have no id

            turn = engine.turn if isinstance(engine.turn, Turn) and engine.turn.is_current else None
        ids: list[str] = []
        if message_id is not None:
            name = check_id(message_id)
            ids = [name, *(f"{name}.{n}" for n in range(2, len(messages) + 1))]
        elif turn is not None and turn.key:
            ids = [turn.next_id(n) for n in range(len(messages))]
        index = engine.run(self.actor, operation, _receive_all, messages, self._answer, view, ids)
        if turn is not None and message_id is None:
            turn.added += len(messages)
        return index


@contextmanager
def _name_place(place: str) -> Iterator[None]:
    """Add the place in the list, such as `operations[1]`, to the errors of a block."""
    try:
        yield
    except (InvalidOperation, NoSuchPage) as error:
        error.name_place(place)
        raise


def _scrub(state: State, done: Cleanup, scrub: bool) -> Cleanup:
    """Scrub the store if asked to. Return the result of the cleanup with what remains in the store."""
    from quire.system.purge import (  # imported late: they are rarely needed
        drop_board,
        remains_without_scrub,
        scrub_bytes,
    )

    storage = state.storage
    left = drop_board(storage, state.context) if done.messages else ()
    left += scrub_bytes(storage, [state.context]) if scrub else remains_without_scrub(storage) if done.messages else ()
    return replace(done, scrubbed=not left, remains=left)


def _set_prompt(plan: Plan, message: Message) -> int:
    return plan.message_index(arrivals.set_prompt(plan, message))


def _is_view(value: object) -> bool:
    """Return whether a value is None or a `View`. This package does not import that class."""
    return value is None or hasattr(value, "parts")


def _receive_all(
    plan: Plan, messages: Sequence[Message], answer: Answer | None, view: object | None, ids: Sequence[str] = ()
) -> int:
    """Plan the arrival of several messages; return the index of the last. The first reply answers the view.

    A message with an id that a message in the conversation has is not added.
    """
    if not _is_view(view):
        raise InvalidValue(f"is {short_repr(view)}; a View is needed.", argument="view")
    number = -1
    for place, message in enumerate(messages):
        known = arrivals.find_message(plan, ids[place]) if ids else None
        if known is not None:
            number = known
            continue
        sent, tools = _NOTHING
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
    if isinstance(call, ToolCall):
        arguments: Any = call.arguments
        text = _as_json(arguments) if isinstance(arguments, Mapping) else arguments
        if call.custom:
            return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": text}}
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}
    return call


def _as_json(value: Mapping[str, Any]) -> str:
    return json.dumps(to_plain_json(value, "content"), ensure_ascii=False)
