"""A block of work that is held back in memory and leaves the conversation when it ends."""

from collections.abc import Sequence

from quire.conversation.arrivals import keep_aside
from quire.conversation.batches import batch_start, take_back
from quire.errors import Conflict, InvalidOperation
from quire.messages import Message
from quire.pages import Form, Mark
from quire.plan import Plan
from quire.records import PAGE_CODE, SEGMENT_CODE, Batch, Gone, PageRecord, decode_entry, segment_number
from quire.state import State
from quire.storage.base import JOURNAL
from quire.system.face import Face
from quire.system.journal import page_before

_SET_BY_HAND = ("pinned", "name", "description", "visibility", "meta")
_TRIES = 20


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
                    plan = self._engine.begin(self._face.actor)
                    take_back(plan, Batch(self._messages, self._version), self._around, pinned_too=True)
                    self._engine.commit(plan, "temporary", undoes=self._version + 1)
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
        others = _other_changes(inner, self._version)
        self._held.drop()
        self._engine.refresh()
        if spoken:
            self._keep_aside(spoken)
        if others:
            raise Conflict(
                f"Another writer changed the context during temporary(): {', '.join(others[:12])} could not be stored."
            )

    def _keep_aside(self, spoken: Sequence[Message]) -> None:
        for _ in range(_TRIES):
            try:
                return self._face.run("temporary", _keep_all_aside, spoken)
            except Conflict:
                self._engine.refresh()
        return self._face.run("temporary", _keep_all_aside, spoken)


def _keep_all_aside(plan: Plan, messages: Sequence[Message]) -> None:
    for message in messages:
        keep_aside(plan, message, Mark.ENDED)


def _other_changes(state: State, since: int) -> list[str]:
    """What was changed since an entry beside messages, their marks and their summaries, by name."""
    pages: dict[int, PageRecord | Gone | None] = {}
    segments: dict[int, None] = {}
    for record in state.storage.scan(state.context, JOURNAL, since + 1, state.version):
        for touched in decode_entry(record.key, record.value).touched:
            if touched.family == PAGE_CODE:
                pages.setdefault(touched.key, page_before(touched))
            elif touched.family == SEGMENT_CODE:
                segments.setdefault(touched.key)
    named = [repr(state.index(key)) for key, old in pages.items() if not _is_talk(state, key, old)]
    return [*named, *(f"segment {state.counters[number].segment!r}" for number in segments)]


def _is_talk(state: State, key: int, old: PageRecord | Gone | None) -> bool:
    """Whether all that happened to a page is that messages came, were marked or were summed up."""
    page = state.page(key)
    if not isinstance(page, PageRecord):
        return segment_number(key) == state.conversation()
    if page.header.form in (Form.TEXT, Form.WINDOW):
        return False
    if not isinstance(old, PageRecord) or old.header.numbers != page.header.numbers:
        return True
    return all(getattr(page.header, field) == getattr(old.header, field) for field in _SET_BY_HAND)
