"""Conversation: the message face of a context."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from quire.conversation import arrivals, batches, edits
from quire.conversation.batches import Temporary
from quire.conversation.edits import cleanup, messages_of, planner_of
from quire.conversation.importing import Importer
from quire.conversation.results import Cleanup, ImportReport, MarkMap, Modification
from quire.conversation.sequence import Item, Messages, handed_out, items, newest_numbers, numbers_after
from quire.core.engine import Engine
from quire.core.plan import Plan
from quire.errors import Conflict, InvalidValue, QuireError, short_repr
from quire.model.messages import Message, ToolCall
from quire.model.pages import Mark, PageIndex
from quire.model.text import MAX_NAME, check_one_line, check_text
from quire.providers import parse
from quire.system.rules import check_whole_number

_TRIES = 20


class Conversation:
    """The conversation segment's leaves in order, as messages: adding, reading, editing, batches.

    An exchange is one page: a message without calls, or an assistant message with its calls and all their results.
    Message indices run in order of arrival and never shift; only `cleanup` numbers anew.
    """

    def __init__(self, engine: Engine, actor: str) -> None:
        self.actor = check_one_line(actor, "actor", 100, empty=False)
        self._engine = engine

    @property
    def context(self) -> str:
        """The name of this context in its storage."""
        return self._engine.state.context

    def acting_as(self, actor: str) -> "Conversation":
        """Return the same conversation under another actor's name in the journal."""
        return Conversation(self._engine, actor)

    # Adding

    def system(self, text: str, name: str | None = None) -> int:
        """Set the system prompt, or a further one by its name; its message index. The same text changes nothing."""
        said = check_text(text, "text")
        called = None if name is None else check_one_line(name, "name", MAX_NAME, empty=False)
        message = Message(role="system", content=said, name=called)
        return self._engine.run(self.actor, "system", _indexed, arrivals.set_prompt, message)

    def user(self, content: Any) -> int:
        """Add a user message: text, or a list of parts in any provider's shape; its message index."""
        return self._say("user", content)

    def assistant(self, content: Any = None, tool_calls: Iterable[Any] | None = None) -> int:
        """Add an assistant message, perhaps with tool calls (as a provider gives them, or `ToolCall`s); its index."""
        if tool_calls is None:
            return self._say("assistant", content)
        if isinstance(tool_calls, str | bytes | Mapping) or not isinstance(tool_calls, Iterable):
            raise InvalidValue(f"tool_calls is {short_repr(tool_calls)}; a list of calls is needed.")
        calls = [_as_call(call) for call in tool_calls]
        return self.add({"role": "assistant", "content": content, "tool_calls": calls})

    def tool_result(self, call_id: str, content: Any) -> int:
        """Add the result of a tool call, early or late; its message index. The same result again changes nothing.

        The content is text, a list of parts, or a dict, which is kept as JSON.
        """
        if isinstance(content, Mapping):
            content = _as_json(content)
        if isinstance(content, str):
            message = Message(role="tool", content=check_text(content), tool_call_id=check_text(call_id, "call_id"))
            return self._engine.run(self.actor, "tool", _indexed, arrivals.receive, message)
        return self.add({"role": "tool", "tool_call_id": call_id, "content": content})

    def add(self, message: Any) -> int:
        """Add a message, several, or a whole response, as any provider's dicts or SDK objects.

        The index of the last one. Several are added together or not at all.
        """
        messages = parse(message)
        if not messages:
            raise InvalidValue(f"There is no message in {short_repr(message)}.")
        operation = messages[0].role if len(messages) == 1 else "add"
        return self._engine.run(self.actor, operation, _receive_all, messages)

    def import_messages(
        self, messages: Iterable[Any], *, progress: Callable[[ImportReport], None] | None = None
    ) -> ImportReport:
        """Take in a whole history, also a broken one, in one streaming pass; what was taken in and what was wrong.

        It is committed in parts of 500 messages, and `progress` is told after each: if the iterable itself fails,
        what came before it stays.
        """
        if progress is not None and not callable(progress):
            raise InvalidValue(f"progress is {short_repr(progress)}; a function that takes an ImportReport is needed.")
        importer = Importer(messages)
        for part in importer.parts():
            self._patiently("import_messages", importer.take, part)
            importer.keep()
            if progress is not None:
                progress(self._engine.read(importer.report))
        return self._engine.read(importer.finish)

    # Calls that wait for results

    def pending_calls(self) -> list[ToolCall]:
        """The calls of the newest exchange that have no result yet."""
        return self._engine.read(arrivals.pending_calls)

    def close_calls(self) -> list[ToolCall]:
        """Give up waiting for the newest exchange's results; the calls that had none. Late ones are still taken in."""
        return self._engine.run(self.actor, "close_calls", arrivals.close_calls)

    # Reading

    def messages(self, all: bool = False) -> Messages:  # noqa: A002 - the word the contract has
        """The messages in the conversation, in the order they stand; with `all` every one by index, marked ones too."""
        if not isinstance(all, bool):
            raise InvalidValue(f"all is {short_repr(all)}; True or False is needed.")
        return Messages(self._engine.read, everything=all)

    def message(self, index: int) -> Message:
        """The message with this index, marked or not."""

        def read(state: Any) -> Message:
            numbering = state.numbering()
            return handed_out(state, numbering, numbering.number(edits.check_index(state, index)))

        return self._engine.read(read)

    def messages_after(self, index: int | None = None, limit: int = 100) -> list[Message]:
        """The next messages in the order they stand, after this one or from the first on.

        What stands before is not read, so that a long conversation is gone through in parts. Raises `InvalidValue`
        if that message is no longer in the conversation.
        """
        most = check_whole_number(limit, "limit")

        def read(state: Any) -> list[Message]:
            numbering = state.numbering()
            after = None if index is None else edits.check_index(state, index)
            return [handed_out(state, numbering, number) for number in islice(numbers_after(state, after), most)]

        return self._engine.read(read)

    def newest(self, limit: int = 100) -> list[Message]:
        """The last messages of the conversation, in the order they stand. What stands before them is not read."""
        most = check_whole_number(limit, "limit")

        def read(state: Any) -> list[Message]:
            numbering = state.numbering()
            return [handed_out(state, numbering, number) for number in islice(newest_numbers(state), most)][::-1]

        return self._engine.read(read)

    def messages_on(self, page: PageIndex) -> list[Message]:
        """The messages of an exchange by its page; none for a page that holds something else. Raises `NoSuchPage`."""

        def read(state: Any) -> list[Message]:
            numbering = state.numbering()
            return [handed_out(state, numbering, number) for number in state.require_page(page).header.numbers]

        return self._engine.read(read)

    def items(self, active: bool = False) -> Iterator[Item]:
        """Prompts, exchanges and summaries by seq; with `active` only those that no edit took out. Streams."""
        if not isinstance(active, bool):
            raise InvalidValue(f"active is {short_repr(active)}; True or False is needed.")
        found = self._engine.read(lambda state: items(state, active=active))
        return self._engine.stream(found, lambda _, item: item)

    def page_of(self, index: int) -> PageIndex | None:
        """The page a message stands on; None if it was removed."""

        def look(state: Any) -> PageIndex | None:
            page = state.page_of(state.numbering().number(edits.check_index(state, index)))
            return None if page is None else state.index(page.key)

        return self._engine.read(look)

    def mark_of(self, index: int) -> Mark:
        """Why a message is out of the conversation; `Mark.NONE` if it is in."""
        return self._engine.read(lambda state: state.mark_of(state.numbering().number(edits.check_index(state, index))))

    def is_modified(self, index: int) -> bool:
        """Whether an edit took the message out of the conversation."""
        return self.mark_of(index) is not Mark.NONE

    # Modifications

    def insert(self, data: Any, at: int | None = None) -> Modification:
        """Bring in a message or several: at the end, or before message `at` (inside an exchange: after it)."""
        return self._engine.run(self.actor, "insert", edits.insert, messages_of(data), at)

    def delete(self, indices: int | Iterable[int]) -> Modification:
        """Take messages out of the conversation. They stay readable with `messages(all=True)` until `cleanup`."""
        return self._engine.run(self.actor, "delete", edits.delete, indices)

    def replace(self, indices: int | Iterable[int], data: Any) -> Modification:
        """Let another message, or several, stand where these stood."""
        return self._engine.run(self.actor, "replace", edits.replace, indices, messages_of(data))

    def compress(self, indices: int | Iterable[int], summary: str | None = None) -> Modification:
        """Let a summary stand for messages: one for every run of neighbours, extracted from them unless given."""
        return self._engine.run(self.actor, "compress", edits.compress, indices, summary)

    def modify(self, operations: Sequence[Mapping[str, Any]]) -> list[Modification]:
        """Carry out modifications given as dicts (`operation`, `indices`, `data`, `batch`): all of them or none."""
        if isinstance(operations, str | bytes | Mapping) or not isinstance(operations, Sequence):
            raise InvalidValue(f"operations is {short_repr(operations)}; a list of dicts is needed.")
        planned = [planner_of(value, f"operations[{n}]") for n, value in enumerate(operations)]
        with self._together():
            return [self._engine.run(self.actor, operation, plan) for operation, plan in planned]

    def cleanup(self) -> Cleanup:
        """Destroy the messages that are out of the conversation and number the others anew.

        Refused while a batch is open. Nothing before it can be undone afterwards.
        """
        return self._engine.run(self.actor, "cleanup", cleanup)

    # Batches

    def batch_start(self, boundary: int | None = None) -> Modification:
        """Open the next batch at a message index, by default at the end."""
        return self._engine.run(self.actor, "batch_start", batches.batch_start, boundary)

    def batch_end(self, target: int) -> Modification:
        """Go back to a batch: what arrived since leaves the conversation, and every mark made since is undone."""
        return self._engine.run(self.actor, "batch_end", batches.batch_end, target)

    def batch_commit(self) -> Modification:
        """Close the current batch and keep its work, for the batch around it."""
        return self._engine.run(self.actor, "batch_commit", batches.batch_commit)

    def mark_map(self) -> MarkMap:
        """The messages in order of arrival and the open batches, as lists of indices."""
        return self._engine.read(batches.mark_map)

    @contextmanager
    def temporary(self) -> Iterator[None]:
        """A block whose messages and edits are gone when it ends, however it ends.

        They are seen only through this handle, and a process that dies in the block leaves no trace. Pages written
        elsewhere in the block, such as notes, stay when it ends.
        """
        block = Temporary(self._engine, self.actor)
        try:
            yield
        except BaseException as error:
            try:
                block.end()
            except QuireError as second:
                error.add_note(f"What was done in the temporary block could not be stored: {second}")
            raise
        block.end()

    def _patiently(self, operation: str, planner: Callable[[Plan, Any], None], part: Any) -> None:
        """Plan and commit what only adds, again if another writer was first."""
        for _ in range(_TRIES):
            try:
                return self._engine.run(self.actor, operation, planner, part)
            except Conflict:
                self._engine.refresh()
        return self._engine.run(self.actor, operation, planner, part)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Operations that reach the storage as one commit, or not at all."""
        with self._engine.lock:
            held = self._engine.begin_transaction()
            try:
                yield
                held.commit_all()
            except BaseException:
                held.discard()
                raise

    def _say(self, role: Any, content: Any) -> int:
        if isinstance(content, str):  # the everyday case needs no parser
            message = Message(role=role, content=check_text(content, "content"))
            return self._engine.run(self.actor, role, _indexed, arrivals.receive, message)
        return self.add({"role": role, "content": content})


def _indexed(plan: Plan, arrive: Callable[[Plan, Message], int], message: Message) -> int:
    """Plan an arrival; the index of the message."""
    return plan.message_index(arrive(plan, message))


def _receive_all(plan: Plan, messages: Sequence[Message]) -> int:
    """Plan the arrival of several messages; the index of the last."""
    return [_indexed(plan, arrivals.receive, message) for message in messages][-1]


def _as_call(call: Any) -> Any:
    if isinstance(call, ToolCall):
        arguments: Any = call.arguments
        text = _as_json(arguments) if isinstance(arguments, Mapping) else arguments
        if call.custom:
            return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": text}}
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": text}}
    return call


def _as_json(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"{short_repr(value)} cannot be written as JSON: {error}.") from None
