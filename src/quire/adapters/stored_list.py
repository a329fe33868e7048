"""The messages of a context as the list of a framework: all of them, including those that no provider accepts."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from quire.context import Context
from quire.conversation.arrivals import close_calls, exchange_awaiting, receive, store_marked
from quire.conversation.edits import delete
from quire.conversation.importing import UNREADABLE
from quire.conversation.sequence import newest_numbers, read_messages
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import page_key
from quire.core.state import State
from quire.errors import InvalidOperation
from quire.model.messages import Message
from quire.model.pages import Mark
from quire.system.lifecycle import unpin
from quire.system.tree import remove_page


def read_newest(ctx: Context, limit: int | None = None) -> list[Message]:
    """Return the newest messages in order, without a limit all of them. Earlier messages are not read."""

    def read(state: State) -> list[Message]:
        return read_messages(state, list(islice(_newest_numbers(state), limit)))[::-1]

    return ctx.pages._engine.read(read)


def replace_stored(ctx: Context, operation: str, gone: Sequence[Message], fresh: Sequence[Message]) -> None:
    """Delete messages and add others in one commit. Messages that no provider accepts are stored and not shown."""

    def plan_changes(plan: Plan) -> None:
        take_out(plan, [message.index for message in gone])
        for message in fresh:
            _add(plan, message)

    if gone or fresh:
        ctx.pages._engine.run(ctx.pages.actor, operation, plan_changes)


def _newest_numbers(reader: Reader) -> Iterator[int]:
    """Yield the numbers of the messages, last first. An unshowable message is at the place where it arrived."""
    unshowable = _unshowable(reader)
    pending = next(unshowable, None)
    for number in chain(newest_numbers(reader), [-1]):
        while pending is not None and pending[0] > number:
            if pending[1] is Mark.UNSHOWABLE:
                yield pending[0]
            pending = next(unshowable, None)
        if number >= 0:
            yield number


def _unshowable(reader: Reader) -> Iterator[tuple[int, Mark]]:
    """Yield the messages outside the conversation with their marks, newest first. Each is read when it is needed."""
    conversation = reader.conversation()
    if conversation is not None:
        for page in reader.members(page_key(conversation, 0), reverse=True, cold=True):
            if page.header.numbers:
                yield page.header.numbers[-1], page.header.mark


def take_out(plan: Plan, indices: Sequence[int]) -> None:
    """Plan to delete messages: those in the conversation, prompts, and those that are not shown."""
    spoken: list[int] = []
    for index in indices:
        page = plan.page_of(plan.numbering().number(index))
        if page is None:
            continue
        if page.header.mark is Mark.UNSHOWABLE:
            plan.change(page, mark=Mark.DELETED)
        elif plan.in_system(page):
            unpin(plan, plan.index(page.key))
            remove_page(plan, plan.index(page.key))
        else:
            spoken.append(index)
    if spoken:
        close_calls(plan)  # an exchange that waits for results cannot be deleted
        delete(plan, spoken)


def _add(plan: Plan, message: Message) -> None:
    arrived = plan.next_message
    try:
        is_lost = UNREADABLE in message.meta or _answers_deleted_call(plan, message)
        if not is_lost and receive(plan, message) >= arrived:
            return
    except InvalidOperation:  # for example a result without a call
        pass
    close_calls(plan)
    if (last := plan.last_exchange()) is not None:
        plan.change(last, closed=True)  # a later item must not join the answer before this message
    store_marked(plan, message)  # a wrong message, or the same result again


def _answers_deleted_call(plan: Plan, message: Message) -> bool:
    page = exchange_awaiting(plan, message.tool_call_id or "") if message.role == "tool" else None
    return page is not None and page.header.mark not in (Mark.NONE, Mark.COMPRESSED)
