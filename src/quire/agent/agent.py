"""AgentContext: the operations of an agent. Every one of them passes the gate."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from itertools import islice
from typing import TypeVar, Unpack
from zlib import crc32

from quire.agent.gate import Gate, VisibleReader, current_turn_pages
from quire.agent.listing import AnswerRoom, answer_room, check_page_fits, contents, every_page, format_entry
from quire.conversation.edits import delete
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import KEY, PageRecord, segment_number
from quire.core.state import State
from quire.errors import Hint, InvalidOperation, InvalidValue, PermissionDenied, names_options, short_repr
from quire.model.pages import Form, Mark, Page, PageIndex, Permission, Segment, SegmentType
from quire.model.text import check_one_line
from quire.search.find import FindFilters, Hit, find
from quire.search.query import agent_scope
from quire.system import ContextSystem, lifecycle, segments, tree
from quire.system.compressed_summaries import read_originals
from quire.system.rules import (
    Quota,
    charge,
    check_bool,
    check_choice,
    check_movable,
    check_quota,
    check_whole_number,
    folder_index,
    require_attached,
)
from quire.system.tree import to_page, to_segment, to_text
from quire.view.cost import Outlook
from quire.view.deferred import is_shown_whole
from quire.view.escaping import Escaping, escaping_for
from quire.view.handle import ViewHandle
from quire.view.preamble import context_key
from quire.view.sheets import SPAN, read_span
from quire.windows.window_manager import close_window

T = TypeVar("T")
READ_LENGTH = 4_000
"""The number of characters that `read_page` returns by default."""


@names_options
class AgentContext:
    """A context as one agent uses it, under the agent's name in the journal.

    PRIVATE segments do not exist here. Pinned pages cannot be changed. An operation that a segment's permission does
    not allow is refused with `PermissionDenied`. `manage` lets the agent add and remove segments and set permissions;
    `quota` limits what it may add; `remove_user_messages` lets it remove messages of the user. `views` draws the views
    of the context and holds their budget.

    A change by an agent takes effect in the view at the next fold, so that the provider's cache stays valid. A page
    that the agent opens or writes is shown after the newest message until then.
    """

    def __init__(
        self,
        system: ContextSystem,
        actor: str = "agent",
        manage: bool = False,
        *,
        quota: Quota | None = None,
        views: ViewHandle | None = None,
        remove_user_messages: bool = False,
    ) -> None:
        if not isinstance(system, ContextSystem):
            raise InvalidValue(f"is {short_repr(system)}; a quire.ContextSystem is needed.", argument="system")
        self.actor = check_one_line(actor, "actor", 100, empty=False)
        self.quota = check_quota(Quota() if quota is None else quota)
        self._engine = system._engine
        removes = check_bool(remove_user_messages, "remove_user_messages")
        self._gate = Gate(check_bool(manage, "manage"), remove_user_messages=removes)
        self._views = ViewHandle(system._engine, system.actor) if views is None else views
        self._quoting_writes = True
        self._escaper: Escaping | None = None

    def __repr__(self) -> str:
        return f"<AgentContext {self.actor!r} of {self._engine.state.context!r}>"

    @property
    def manages(self) -> bool:
        """True if this agent may add and remove segments and set permissions."""
        return self._gate.manage

    def check_permission(self, index: PageIndex, operation: str) -> None:
        """Raise the error of the operation, such as `PermissionDenied`, unless the agent may do it on this page."""
        self._read(lambda reader, _: self._gate.page(reader, operation, index))

    # Reading

    def get_segment(self, segment_id: str) -> Segment:
        """Return a segment. Raise `NoSuchSegment`."""
        return self._read(lambda reader, _: to_segment(reader, self._gate.segment(reader, "get_segment", segment_id)))

    def list_segments(self) -> list[Segment]:
        """Return the segments in display order."""
        return self._read(lambda reader, _: [to_segment(reader, number) for number, _ in reader.live_segments()])

    def get_page(self, index: PageIndex) -> Page:
        """Return a page. Raise `NoSuchPage`."""
        return self._read(lambda reader, state: _to_agent_page(state, self._gate.page(reader, "get_page", index)))

    def children(self, index: PageIndex, start: int = 0, limit: int | None = None) -> list[Page]:
        """Return the children of a folder in order, at most `limit` of them from position `start`."""

        def read(reader: VisibleReader, state: State) -> list[Page]:
            page = self._gate.page(reader, "children", folder_index(reader, index))
            if not page.header.folder:
                raise InvalidOperation(
                    f"{index!r} is not a folder and has no children.", Hint("read_page", index, purpose="to read it")
                )
            span = _range(start, limit)
            return [_to_agent_page(state, child) for child in islice(reader.members(page.key), *span)]

        return self._read(read)

    def parent(self, index: PageIndex) -> Page | None:
        """Return the folder of a page; None for a root and for a page in the cold archive."""
        above = self.ancestors(index)
        return above[0] if above else None

    def ancestors(self, index: PageIndex) -> list[Page]:
        """Return the folders above a page, nearest first."""

        def read(reader: VisibleReader, state: State) -> list[Page]:
            page = self._gate.page(reader, "ancestors", index)
            return [_to_agent_page(state, above) for above in reader.ancestors(page)]

        return self._read(read)

    def find(self, /, query: str, limit: int = 10, **filters: Unpack[FindFilters]) -> list[Hit]:
        """Search the pages that the agent can see, best first.

        The filters are those of `Context.find`: segment, kind, role, lifecycle, since, until, actor.
        """
        embedder = self._engine.embedder
        return self._read(
            lambda _, state: find(state, query, limit, scope=agent_scope(state), embedder=embedder, **filters)
        )

    def read_page(self, index: PageIndex, start: int = 0, length: int = READ_LENGTH) -> str:
        """Return `length` characters of a page's text from `start`, even if the page is folded, clipped or archived.

        The text of a run, such as `mem-1…mem-64`, is the list of its pages.
        """
        first, size = check_whole_number(start, "start"), check_whole_number(length, "length")
        if isinstance(index, str) and SPAN in index:
            return (self._list_runs(index, self._answer_room()) or "")[first : first + size]

        def read(reader: VisibleReader, _: State) -> str:
            page = self._gate.page(reader, "read_page", index)
            if page.header.folder:
                raise InvalidOperation(
                    f"{index!r} is a folder and has no text.", Hint("children", index, purpose="to list its pages")
                )
            return to_text(reader, page.header, quoted=True)[first : first + size]

        return self._read(read)

    def originals(self, index: PageIndex) -> list[Page]:
        """Return the compressed messages that a page summarises, in order."""

        def read(reader: VisibleReader, state: State) -> list[Page]:
            page = self._gate.page(reader, "read_page", index)
            return [_to_agent_page(state, original) for original in read_originals(reader, page)]

        return self._read(read)

    def length(self, index: PageIndex) -> int:
        """Return the number of characters that `read_page` can read of a page."""

        def read(reader: VisibleReader, _: State) -> int:
            return len(to_text(reader, self._gate.page(reader, "read_page", index).header, quoted=True))

        return self._read(read)

    def view(self, start: int = 0, limit: int | None = None) -> list[str]:
        """Return the table of contents, at most `limit` lines from line `start`. A closed folder is one line."""

        def read(reader: VisibleReader, state: State) -> list[str]:
            lines = islice(contents(reader), *_range(start, limit))
            return [format_entry(_to_agent_page(state, page), depth) for depth, page in lines]

        return self._read(read)

    def list_pages(self, after: PageIndex | None = None, limit: int | None = None) -> list[Page]:
        """Return all pages by segment and number, archived ones included; or at most `limit` of those after an index.

        The page at `after` may have been removed. Raise `NoSuchPage` if there never was such a page.
        """

        def read(reader: VisibleReader, state: State) -> list[Page]:
            return [_to_agent_page(state, page) for page in islice(every_page(reader, state, after), *_range(0, limit))]

        return self._read(read)

    def refresh(self) -> bool:
        """Load what other writers committed; return whether there was anything. Raise `NoSuchContext`."""
        return self._engine.refresh()

    def budget(self) -> Outlook:
        """Return how full the view is, the tokens by kind of part, and the pages that a fold would take next."""
        return self._views._renderer.outlook()

    # What is shown

    def expand_details(self, index: PageIndex) -> None:
        """Open a page and the folders above it. Raise `InvalidOperation` if it is too large to be shown.

        A summary of compressed messages shows these messages until the next fold.
        """

        def planner(plan: Plan, page: PageRecord) -> None:
            is_window = page.header.form is Form.WINDOW  # the tail shows it
            if is_window and page.header.closed:
                raise InvalidOperation(
                    f"Cannot open {index!r}: window {page.header.name!r} is closed.",
                    Hint("read_page", index, purpose="to read its summary"),
                )
            if page.header.mark is Mark.NONE:  # compressed messages stay out of the tree
                lifecycle.expand(plan, index)
            originals = read_originals(plan, page)
            if originals or not (is_window or is_shown_whole(plan.state, page.key)):
                check_page_fits(plan.state, page, self._views.budget, originals)
                plan.defer(page.key)

        self._act_on("expand_details", index, planner)

    def hide_details(self, index: PageIndex) -> None:
        """Show only the summary line of a page."""
        self._act_on("hide_details", index, lambda plan, _: lifecycle.hide(plan, index))

    def archive(self, index: PageIndex, *, cold: bool = False) -> None:
        """Take a page out of the view; with `cold` also out of the tree, until `recall`."""
        self._act_on("archive", index, lambda plan, _: lifecycle.archive(plan, index, cold=cold))

    def recall(self, index: PageIndex) -> PageIndex:
        """Bring a page back from the cold archive to the tree, with all that was archived with it; return its index."""

        def planner(plan: Plan, reader: VisibleReader) -> PageIndex:
            page = self._gate.page(reader, "recall", index)
            top = plan.cold_top(page)
            if top is not None:
                self._gate.page(reader, "recall", plan.index(plan.home_of(top)))
            return lifecycle.recall(plan, index)

        return self._act("recall", planner)

    # Writing

    def create_detail_page(self, name: str, description: str, detail: str, parent: PageIndex) -> PageIndex:
        """Write a new page at the end of a folder; return its index."""

        def planner(plan: Plan, reader: VisibleReader) -> PageIndex:
            above = self._gate.page(reader, "create_detail_page", folder_index(reader, parent))
            index = tree.create_detail_page(plan, name, description, detail, plan.index(above.key))
            self._quote(plan, index)
            return index

        return self._act("create_detail_page", planner)

    def create_contents_page(
        self, name: str, description: str, parent: PageIndex, children: Iterable[PageIndex] = ()
    ) -> PageIndex:
        """Create a folder and move pages of the same segment into it; return its index."""

        def planner(plan: Plan, reader: VisibleReader) -> PageIndex:
            above = self._gate.page(reader, "create_contents_page", folder_index(reader, parent))
            if isinstance(children, str) or not isinstance(children, Iterable):
                raise InvalidValue(f"is {short_repr(children)}; a list of page indices is needed.", argument="children")
            pages = [self._gate.page(reader, "create_contents_page", child, whole_subtree=True) for child in children]
            if segment_number(above.key) == plan.conversation() and any(_has_messages(plan, page) for page in pages):
                _check_neighbours(plan, above, pages)
            indices = [plan.index(page.key) for page in pages]
            return tree.create_contents_page(plan, name, description, plan.index(above.key), indices)

        return self._act("create_contents_page", planner)

    def update_page(self, index: PageIndex, name: str | None = None, description: str | None = None) -> None:
        """Change the name or the summary of a page; None keeps it."""
        self.rewrite(index, name=name, description=description)

    def set_detail(self, index: PageIndex, detail: str) -> None:
        """Replace the text of a text page."""
        self.rewrite(index, detail=detail)

    def rewrite(
        self, index: PageIndex, *, name: str | None = None, description: str | None = None, detail: str | None = None
    ) -> None:
        """Change name, summary and text of a page in one commit; None keeps the old value."""
        operation = "update_page" if detail is None else "set_detail"

        def planner(plan: Plan, _: PageRecord) -> None:
            tree.update_page(plan, index, name=name, description=description)
            if detail is not None:
                before = plan.require_page(index).header.body
                tree.set_detail(plan, index, detail)
                if plan.require_page(index).header.body != before:
                    plan.change(plan.require_page(index), author=plan.author())
                    self._quote(plan, index)

        self._act_on(operation, index, planner)

    def move_page(
        self, source: PageIndex, target: PageIndex, before: PageIndex | None = None
    ) -> dict[PageIndex, PageIndex]:
        """Move a page with its subtree into a folder. Return old → new indices if the segment changes."""

        def planner(plan: Plan, reader: VisibleReader) -> dict[PageIndex, PageIndex]:
            page = self._gate.page(reader, "move_page", source)
            folder = self._gate.page(reader, "move_page", folder_index(reader, target), whole_subtree=False)
            if before is not None:
                reader.require_page(before)
            return _move_page(plan, page, folder, before)

        return self._act("move_page", planner)

    def remove_page(self, index: PageIndex) -> int:
        """Remove a page with its subtree; return how many pages were removed. Messages get a delete mark.

        Messages of the user are refused unless the developer allowed it with `remove_user_messages`.
        """
        return self._act_on("remove_page", index, _remove_page)

    # Segments, for an agent that manages them

    def add_segment(self, name: str, description: str = "") -> Segment:
        """Add a segment; the system chooses its id."""

        def planner(plan: Plan, _: VisibleReader) -> str:
            self._gate.check_manages("add_segment")
            return _add_segment(plan, name, description)

        return self.get_segment(self._act("add_segment", planner))

    def remove_segment(self, segment_id: str) -> int:
        """Remove a segment with all its pages; return how many pages were removed."""

        def planner(plan: Plan, reader: VisibleReader) -> int:
            self._gate.segment(reader, "remove_segment", segment_id)
            return segments.remove_segment(plan, segment_id)

        return self._act("remove_segment", planner)

    def set_permission(self, segment_id: str, permission: Permission) -> None:
        """Set the permission of agents in a segment. PRIVATE is refused."""

        def planner(plan: Plan, reader: VisibleReader) -> None:
            self._gate.segment(reader, "set_permission", segment_id)
            if check_choice(Permission, permission, "permission") is Permission.PRIVATE:
                raise PermissionDenied(
                    f"on segment {segment_id!r} is refused: only the developer sets PRIVATE.",
                    operation="set_permission",
                )
            segments.set_segment_permission(plan, segment_id, permission)

        self._act("set_permission", planner)

    # For the tools

    def _without_quoted_writes(self) -> "AgentContext":
        """Return the same agent for tools with calls in the conversation: the view need not quote what it writes."""
        other = copy(self)
        other._quoting_writes = False
        return other

    def _current_turn_pages(self) -> set[PageIndex]:
        """Return the pages that a model answers just now: the user's last message and the open exchange."""
        return self._read(lambda reader, _: {reader.index(key) for key in current_turn_pages(reader)})

    def _last_message(self, since: int | None = None) -> tuple[bool, int]:
        """Return whether a user message arrived since a message number, and the number of the next message.

        It counts arrivals, so a change of pages by an agent never starts a new turn.
        """

        def read(_: VisibleReader, state: State) -> tuple[bool, int]:
            end = state.next_message
            arrived = state.message_records(since, end) if since is not None and since < end else ()
            return any(record.message.role == "user" for _, record in arrived), end

        return self._read(read)

    def _escaping(self) -> Escaping:
        """Return the escaping of text for a model: answers of tools never contain the context's key."""
        if self._escaper is None:
            with self._engine.lock:
                self._escaper = escaping_for(context_key(self._engine.state))
        return self._escaper

    def _list_runs(self, index: PageIndex, room: AnswerRoom) -> str | None:
        """Return a run of pages, a long folder or, without an index, all segments as lines; None for other pages."""
        from quire.agent.listing import list_folder, list_segments, list_span  # late: most lists are short

        def read(reader: VisibleReader, state: State) -> str | None:
            if not index:
                return list_segments(reader, state, room)
            if read_span(index) is not None:
                return list_span(reader, state, index, room)
            page = self._gate.page(reader, "read_page", index)
            return list_folder(reader, state, page, room) if page.header.folder else None

        return self._read(read)

    def _answer_room(self) -> AnswerRoom:
        """Return the tokens that an answer of a tool may take."""
        room, count = self._views._renderer.room(), self._engine.counter.count
        return self._read(lambda reader, _: answer_room(reader, room, count))

    # Internal

    def _read(self, read: Callable[[VisibleReader, State], T]) -> T:
        with self._engine.lock, self._engine.clean_errors():
            state = self._engine.current()
            return read(VisibleReader(state), state)

    def _act(self, operation: str, planner: Callable[[Plan, VisibleReader], T]) -> T:
        """Plan, charge and commit one journal entry of this agent. The view changes at the next fold."""
        engine = self._engine
        with engine.lock, engine.clean_errors():
            plan = engine.begin(self.actor)
            result = planner(plan, VisibleReader(plan))
            charge(plan, self.quota)
            plan.defer()
            engine.commit(plan, operation)
            return result

    def _act_on(self, operation: str, index: PageIndex, planner: Callable[[Plan, PageRecord], T]) -> T:
        """Run `_act` with a page, if the agent may do the operation on it."""
        return self._act(operation, lambda plan, reader: planner(plan, self._gate.page(reader, operation, index)))

    def _quote(self, plan: Plan, index: PageIndex) -> None:
        """Show what was written after the newest message, unless the model's own call already shows it."""
        if self._quoting_writes:
            plan.defer(plan.require_page(index).key)


def _to_agent_page(state: State, record: PageRecord) -> Page:
    """Return a page without its seqs, which would count changes that the agent cannot see."""
    return to_page(state, record, seqs=False)


def _range(start: object, limit: object) -> tuple[int, int | None]:
    first = check_whole_number(start, "start")
    return first, None if limit is None else first + check_whole_number(limit, "limit")


# Plans that differ from the developer's: an agent removes no message for good and changes no order of messages.


def _remove_page(plan: Plan, page: PageRecord) -> int:
    """Remove a page with its subtree. Messages get a delete mark; a window is closed. Return the number of pages."""
    index = plan.index(page.key)
    if page.header.form is Form.WINDOW:
        return int(close_window(plan, page.key, None))
    if segment_number(page.key) != plan.conversation():
        return tree.remove_page(plan, index)
    exchanges = [leaf for _, leaf in plan.subtree(page) if leaf.header.numbers]
    if not exchanges:
        return tree.remove_page(plan, index)
    check_movable(plan, require_attached(plan, index, "remove"), "remove")
    numbers = [number for leaf in exchanges for number in leaf.header.numbers]
    count = len(delete(plan, [plan.message_index(number) for number in numbers]).pages)
    if page.header.folder:
        count += tree.remove_page(plan, index)
    return count


def _move_page(
    plan: Plan, page: PageRecord, target: PageRecord, before: PageIndex | None
) -> dict[PageIndex, PageIndex]:
    """Move a page. Refuse to move messages, and to move anything with messages into the conversation."""
    source = plan.index(page.key)
    ends = (segment_number(page.key), segment_number(target.key))
    if plan.conversation() in ends and _has_messages(plan, page):
        raise PermissionDenied(
            "is refused: messages keep their order and their segment. Gather neighbours under a new folder instead.",
            operation="move_page",
            page=source,
        )
    return tree.move_page(plan, source, plan.index(target.key), before)


def _add_segment(plan: Plan, name: str, description: str) -> str:
    """Add a segment under an id that reveals nothing about other segments; return the id."""
    key, number = plan.note(KEY), 0
    seed = crc32((key.name if key else "").encode())
    while True:
        segment_id = f"a{crc32(b'%d' % number, seed):08x}"
        if plan.number_of(segment_id) is None:
            break
        number += 1
    segments.add_segment(plan, Segment(id=segment_id, name=name, description=description, type=SegmentType.CUSTOM))
    return segment_id


def _has_messages(reader: Reader, page: PageRecord) -> bool:
    return any(leaf.header.numbers for _, leaf in reader.subtree(page))


def _check_neighbours(plan: Plan, parent: PageRecord, children: Sequence[PageRecord]) -> None:
    """Raise `InvalidOperation` unless the pages are neighbours in their order, so that no order changes."""
    wanted = [page.key for page in children]
    row = [page.key for page in plan.members(parent.key)]
    start = row.index(wanted[0]) if wanted[0] in row else -1
    if start < 0 or row[start : start + len(wanted)] != wanted:
        listed = ", ".join(plan.index(key) for key in wanted)
        raise InvalidOperation(
            f"Cannot gather {listed}: messages keep their order. Name neighbours in {plan.index(parent.key)}, in order."
        )
