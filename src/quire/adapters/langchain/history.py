"""A chat message history in a context."""

from collections.abc import Sequence
from typing import Self, Unpack
from weakref import finalize

from quire.adapters.context_pool import Where, requires_extra, to_context
from quire.adapters.langchain.messages import from_stored, to_stored, with_ids
from quire.adapters.stored_list import read_newest, replace_stored
from quire.adapters.turn_scope import AnyContext
from quire.aio.calls import CallQueue
from quire.open_context import Options

with requires_extra("langchain"):
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import BaseMessage


class QuireChatMessageHistory(BaseChatMessageHistory):
    """The messages of one session, stored without loss in the context of that name.

    `where` is a path, a URL, a storage or an open context. With `bounded`, `messages` returns what fits the context's
    `budget`: the newest messages whole, the others folded. `view` always returns that.
    """

    def __init__(self, session_id: str, where: Where, *, bounded: bool = False, **options: Unpack[Options]) -> None:
        super().__init__()
        self.session_id = session_id
        self.ctx = to_context(where, session_id, **options)
        self._bounded = bounded
        self._queue = CallQueue()
        self._closed = None if isinstance(where, AnyContext) else finalize(self, self.ctx.close)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """Every message in the order of arrival; with `bounded` what fits the budget."""
        return self.view() if self._bounded else self.whole()

    def whole(self) -> list[BaseMessage]:
        """Return every message in the order of arrival."""
        self.ctx.refresh()
        arrived = sorted(read_newest(self.ctx), key=lambda message: message.index)
        return [found for message in arrived if (found := from_stored(message)) is not None]

    def view(self) -> list[BaseMessage]:
        """Return what fits the context's budget: whole messages as they were added, older ones folded."""
        self.ctx.refresh()
        shown = self.ctx.render().messages
        return [with_ids(found) for message in shown if (found := from_stored(message)) is not None]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages in one commit. Messages that no model may see are stored and not shown."""
        fresh = [one for message in messages for one in to_stored(message)]
        self.ctx.pages._engine.retry(lambda: replace_stored(self.ctx, "add", [], fresh))

    def clear(self) -> None:
        """Remove every message. They stay in the store until `cleanup`."""
        self.ctx.refresh()
        self.ctx.pages._engine.retry(lambda: replace_stored(self.ctx, "clear", read_newest(self.ctx), []))

    async def aget_messages(self) -> list[BaseMessage]:
        """Return `messages` without blocking the event loop."""
        return await self._queue.run(lambda: self.messages)

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Run `add_messages` without blocking the event loop."""
        await self._queue.run(self.add_messages, messages)

    async def aclear(self) -> None:
        """Run `clear` without blocking the event loop."""
        await self._queue.run(self.clear)

    def close(self) -> None:
        """Release the storage, if it was opened here. Everything is stored even without this call."""
        if self._closed is not None:
            self._closed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
