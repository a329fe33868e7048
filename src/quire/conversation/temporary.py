"""A block of work that is held back in memory and leaves the conversation when it ends."""

from collections.abc import Sequence

from quire.conversation.arrivals import keep_aside
from quire.conversation.batches import batch_start, take_back
from quire.errors import Conflict, InvalidOperation
from quire.messages import Message
from quire.pages import Form, Mark
from quire.plan import Plan
from quire.records import PAGE_CODE, Batch, PageRecord, decode_entry, segment_number
from quire.state import State
from quire.storage.base import JOURNAL
from quire.system.face import Face


class Temporary:
    """One such block, from the moment it is made until `end`."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._engine = face._engine
        with self._engine.lock:
            before = self._engine.current()
            self._version = before.version
            self._messages = before.next_message
            self._around = before.batches()
            self._held = self._engine.hold()
            try:
                face.run("batch_start", batch_start)
            except BaseException:
                self._held.drop()
                raise

    def end(self) -> None:
        """Take back what the block did to the conversation, and hand the rest over in one commit.

        If another writer was at work meanwhile, only the messages are handed over, marked; were there other changes,
        `Conflict` names the pages.
        """
        with self._engine.lock:
            if self._held.ended:
                raise InvalidOperation("This temporary() was ended with the one around it: end them in turn.")
            try:
                if self._engine.current().version > self._version + 1:
                    whole = Batch(self._messages, self._version)
                    self._face.run("temporary", take_back, whole, self._around, pinned_too=True)
                    self._held.release()
                    return
            except Conflict:
                self._hand_over_messages()
                return
            except BaseException:
                self._held.drop()
                raise
            self._held.drop()

    def _hand_over_messages(self) -> None:
        inner = self._engine.state
        spoken = [record.message for _, record in inner.message_records(self._messages, inner.next_message - 1)]
        others = _other_pages(inner, self._version)
        self._held.drop()
        self._engine.refresh()
        if spoken:
            self._face.run("temporary", _keep_all_aside, spoken)
        if others:
            raise Conflict(
                f"Another writer changed the context during temporary(): {', '.join(others[:12])} could not be stored."
            )


def _keep_all_aside(plan: Plan, messages: Sequence[Message]) -> None:
    for message in messages:
        keep_aside(plan, message, Mark.ENDED)


def _other_pages(state: State, since: int) -> list[str]:
    """The pages changed since an entry that are neither messages nor what goes with them."""
    found: dict[int, None] = {}
    for record in state.storage.scan(state.context, JOURNAL, since + 1, state.version):
        for touched in decode_entry(record.key, record.value).touched:
            if touched.family == PAGE_CODE:
                found.setdefault(touched.key)
    return [repr(state.index(key)) for key in found if not _is_talk(state, key)]


def _is_talk(state: State, key: int) -> bool:
    """Whether a page holds messages or their summary, or did before it was removed."""
    page = state.page(key)
    if isinstance(page, PageRecord):
        return page.header.form is not Form.TEXT
    return segment_number(key) == state.conversation()
