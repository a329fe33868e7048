"""Conversation: add, read and edit the messages of a context."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from msgspec.structs import replace

from quire.conversation import batches, edits
from quire.conversation.batches import Cleanup, MarkMap, Modification
from quire.conversation.edits import cleanup, messages_of, planner_of
from quire.conversation.message_handle import Answer, MessageHandle
from quire.conversation.sequence import date_messages, newest_numbers, numbers_after, read_messages
from quire.core.engine import Engine, Transaction
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, NoSuchPage, names_options, short_repr
from quire.model.messages import Message
from quire.model.pages import Mark, PageIndex
from quire.system.rules import check_bool, check_whole_number


@names_options
class Conversation(MessageHandle):
    """The messages of the conversation segment: adding, reading, editing, batches.

    An exchange is one page: a message without calls, or an assistant message with its calls and all their results.
    Message indices follow the order of arrival and never shift; only `cleanup` renumbers them.
    """

    def __init__(self, engine: Engine, actor: str, answer: Answer | None = None) -> None:
        super().__init__(engine, actor)
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

    # Reading

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
        return self._run(edits.insert, messages, at)

    def modify(self, operations: Sequence[Mapping[str, Any]]) -> list[Modification]:
        """Apply modifications given as dicts (`operation`, `indices`, `data`, `batch`): all of them or none."""
        if isinstance(operations, str | bytes | Mapping) or not isinstance(operations, Sequence):
            raise InvalidValue(f"is {short_repr(operations)}; a list of dicts is needed.", argument="operations")
        results: list[Modification] = []
        with self._engine.lock:
            transaction = Transaction(self._engine)
            try:
                for n, value in enumerate(operations):
                    with self._engine.clean_errors(operations), _name_place(f"operations[{n}]"):
                        operation, plan = planner_of(value)
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
            done = self._run(cleanup)
            return _scrub(self._engine.state, done, scrub)

    # Batches

    def batch_start(self, boundary: int | None = None) -> Modification:
        """Open the next batch at a message index, by default at the end."""
        return self._run(batches.batch_start, boundary)

    def batch_end(self, target: int) -> Modification:
        """Go back to a batch: later messages leave the conversation, and later marks are undone."""
        return self._run(batches.batch_end, target)

    def batch_commit(self) -> Modification:
        """Close the current batch and keep its changes as part of the batch around it."""
        return self._run(batches.batch_commit)

    def mark_map(self) -> MarkMap:
        """Return the messages in order of arrival and the open batches, as lists of indices."""
        return self._engine.read(batches.mark_map)


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
    from quire.core.companion import ids_with_companions
    from quire.system.scrub import drop_board, remains_without_scrub, scrub_bytes  # imported late: rarely needed

    storage = state.storage
    left = drop_board(storage, state.context) if done.messages else ()
    if scrub:
        left += scrub_bytes(storage, ids_with_companions(storage, state.context))
    elif done.messages:
        left += remains_without_scrub(storage)
    return replace(done, scrubbed=not left, remains=left)
