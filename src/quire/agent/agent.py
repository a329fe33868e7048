"""Planning what an agent does otherwise than a developer: it takes no message away, and changes no order of them.

AgentContext: what the model itself may see and do. Every operation goes through one gate.

What the tools work with: the agent, its windows if there are any, and how full its view is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any, Protocol, TypeVar
from zlib import crc32

from quire.agent.gate import Gate, Quota, Sight, at_hand, charge, check_quota
from quire.agent.listing import Room, answer_room, check_room, contents, entry, every_page
from quire.conversation.edits import delete
from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import KEY, PageRecord, segment_number
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, PermissionDenied, short_repr
from quire.model.pages import Form, Page, PageIndex, Permission, Segment, SegmentType
from quire.model.text import one_line
from quire.search.find import Filters, Hit, find
from quire.search.query import open_to_agents
from quire.system import ContextSystem, lifecycle, segments, tree
from quire.system.rules import check_choice, check_movable, check_whole_number, require_attached
from quire.system.to_public import to_page, to_segment, to_text
from quire.view.deferred import is_shown_whole
from quire.view.renderer import Outlook
from quire.view.view_facade import Drawing
from quire.windows.window_store import close_window


def remove_page(plan: Plan, page: PageRecord) -> int:
    """Remove a page with all below it; messages only get a delete mark, a window is closed. How many pages went."""
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
    gone = len(delete(plan, [plan.message_index(number) for number in numbers]).pages)
    if page.header.folder:
        gone += tree.remove_page(plan, index)
    return gone


def move_page(plan: Plan, page: PageRecord, target: PageRecord, before: PageIndex | None) -> dict[PageIndex, PageIndex]:
    """Move a page; messages stay where they are, and none comes into the conversation by this way."""
    source = plan.index(page.key)
    ends = (segment_number(page.key), segment_number(target.key))
    if plan.conversation() in ends and _holds_messages(plan, page):
        raise PermissionDenied(
            f"operation 'move_page' on {source}: messages keep their order and their segment; gather neighbours under"
            " a new folder instead"
        )
    return tree.move_page(plan, source, plan.index(target.key), before)


def create_contents_page(
    plan: Plan, name: str, description: str, parent: PageRecord, children: Sequence[PageRecord]
) -> PageIndex:
    """Add a folder; messages are gathered only as neighbours in their order, so that no order changes."""
    if segment_number(parent.key) == plan.conversation() and any(_holds_messages(plan, page) for page in children):
        _neighbours(plan, parent, children)
    indices = [plan.index(page.key) for page in children]
    return tree.create_contents_page(plan, name, description, plan.index(parent.key), indices)


def add_segment(plan: Plan, name: str, description: str) -> str:
    """Add a segment under an id that tells nothing of what else there is; the id."""
    key, number = plan.note(KEY), 0
    seed = crc32((key.name if key else "").encode())
    while True:
        segment_id = f"a{crc32(b'%d' % number, seed):08x}"
        if plan.number_of(segment_id) is None:
            break
        number += 1
    segments.add_segment(plan, Segment(id=segment_id, name=name, description=description, type=SegmentType.CUSTOM))
    return segment_id


def _holds_messages(reader: Reader, page: PageRecord) -> bool:
    return any(leaf.header.numbers for _, leaf in reader.subtree(page))


def _neighbours(plan: Plan, parent: PageRecord, children: Sequence[PageRecord]) -> None:
    wanted = [page.key for page in children]
    row = [page.key for page in plan.members(parent.key)]
    start = row.index(wanted[0]) if wanted[0] in row else -1
    if start < 0 or row[start : start + len(wanted)] != wanted:
        listed = ", ".join(plan.index(key) for key in wanted)
        raise InvalidOperation(
            f"Cannot gather {listed}: messages keep their order. Name neighbours in {plan.index(parent.key)}, in order."
        )


T = TypeVar("T")
READ_LENGTH = 4_000
"""Characters that `read_page` gives if nobody says how many."""


class AgentContext:
    """A context as one agent sees it, under its own name in the journal.

    PRIVATE segments do not exist here, pinned pages stay as they are, and what a segment's permission does not allow
    is refused with `PermissionDenied`. `manage` lets the agent add, remove and open up whole segments; `quota` bounds
    what it may add. What an agent changes takes its place in the view at the next fold, so that its provider's cache
    holds; what it opens or writes is shown after the newest message until then.
    """

    def __init__(
        self,
        system: ContextSystem,
        actor: str = "agent",
        manage: bool = False,
        *,
        quota: Quota | None = None,
        views: Drawing | None = None,
    ) -> None:
        if not isinstance(system, ContextSystem):
            raise InvalidValue(f"system is {short_repr(system)}; a quire.ContextSystem is needed.")
        if not isinstance(manage, bool):
            raise InvalidValue(f"manage is {short_repr(manage)}; True or False is needed.")
        self.actor = one_line(actor, "actor", 100, empty=False)
        self.quota = check_quota(Quota() if quota is None else quota)
        self._engine = system._engine
        self._gate = Gate(manage)
        self._views = Drawing(system._engine, system.actor) if views is None else views
        self._shows = True

    def __repr__(self) -> str:
        return f"<AgentContext {self.actor!r} of {self._engine.state.context!r}>"

    @property
    def manages(self) -> bool:
        """Whether this agent may add, remove and open up whole segments."""
        return self._gate.manage

    def telling(self) -> "AgentContext":
        """The same agent, for tools: what it writes stands in its calls already and is not quoted again."""
        other = copy(self)
        other._shows = False
        return other

    def check_permission(self, index: PageIndex, operation: str) -> None:
        """Raise `NoSuchPage` or `PermissionDenied` unless the agent may do this with this page."""
        self._look(lambda sight, _: self._gate.page(sight, operation, index))

    # Looking

    def get_segment(self, segment_id: str) -> Segment:
        """A segment. Raises `NoSuchSegment`."""
        return self._look(lambda sight, _: to_segment(sight, self._gate.segment(sight, "get_segment", segment_id)))

    def list_segments(self) -> list[Segment]:
        """The segments in display order."""
        return self._look(lambda sight, _: [to_segment(sight, number) for number, _ in sight.live_segments()])

    def get_page(self, index: PageIndex) -> Page:
        """A page. Raises `NoSuchPage`."""
        return self._look(lambda sight, state: _handed(state, self._gate.page(sight, "get_page", index)))

    def children(self, index: PageIndex, start: int = 0, limit: int | None = None) -> list[Page]:
        """The children of a folder in order, or so many of them."""

        def look(sight: Sight, state: State) -> list[Page]:
            page = self._gate.page(sight, "children", index)
            if not page.header.folder:
                raise InvalidOperation(f"{index!r} is a DetailPage and has no children; read_page({index!r}) reads it.")
            return [_handed(state, child) for child in islice(sight.members(page.key), *_range(start, limit))]

        return self._look(look)

    def parent(self, index: PageIndex) -> Page | None:
        """The folder a page stands in; None for a root and for a page in the cold archive."""
        above = self._above("parent", index)
        return above[0] if above else None

    def ancestors(self, index: PageIndex) -> list[Page]:
        """The folders above a page, nearest first."""
        return self._above("ancestors", index)

    def find(self, /, query: str, limit: int = 10, **filters: Any) -> list[Hit]:
        """The pages that answer a query best, among those the agent can see.

        It takes the filters of `Context.find`: segment, kind, role, lifecycle, since, until, actor.
        """
        given = {**_known_filters(filters), "embedder": self._engine.embedder}
        return self._look(lambda _, state: find(state, query, limit, scope=open_to_agents(state), **given))

    def at_hand(self) -> set[PageIndex]:
        """What a model is answering just now and need not look for: the user's last message, the open exchange."""
        return self._look(lambda sight, _: {sight.index(key) for key in at_hand(sight)})

    def read_page(self, index: PageIndex, start: int = 0, length: int = READ_LENGTH) -> str:
        """A range of what a page says, in characters, also of one that is folded, clipped or archived."""

        def look(sight: Sight, _: State) -> str:
            page = self._gate.page(sight, "read_page", index)
            if page.header.folder:
                raise InvalidOperation(f"{index!r} is a ContentsPage; children({index!r}) lists what is in it.")
            first = check_whole_number(start, "start")
            return to_text(sight, page.header)[first : first + check_whole_number(length, "length")]

        return self._look(look)

    def length(self, index: PageIndex) -> int:
        """How many characters `read_page` can read of a page."""
        return self._look(lambda sight, _: len(to_text(sight, self._gate.page(sight, "read_page", index).header)))

    def view(self, start: int = 0, limit: int | None = None) -> list[str]:
        """The table of contents, or so many lines of it: one for every page that stands open or as one line."""

        def look(sight: Sight, state: State) -> list[str]:
            lines = islice(contents(sight), *_range(start, limit))
            return [entry(_handed(state, page), depth) for depth, page in lines]

        return self._look(look)

    def list_pages(self, after: PageIndex | None = None, limit: int | None = None) -> list[Page]:
        """All pages by segment and number, archived ones included, or so many that come after an index.

        The index need not be that of a page any more. Raises `NoSuchPage` if it could never be one of a page here.
        """

        def look(sight: Sight, state: State) -> list[Page]:
            return [_handed(state, page) for page in islice(every_page(sight, state, after), *_range(0, limit))]

        return self._look(look)

    def heard(self, since: int | None = None) -> tuple[bool, int]:
        """Whether the user has said something since a message number, and the number that the next message will have.

        It goes by what arrived, so that nothing an agent does to pages begins a new turn.
        """

        def look(_: Sight, state: State) -> tuple[bool, int]:
            end = state.next_message
            arrived = state.message_records(since, end) if since is not None and since < end else ()
            return any(record.message.role == "user" for _, record in arrived), end

        return self._look(look)

    def refresh(self) -> bool:
        """Take over what other writers committed; whether there was anything. `NoSuchContext` if it was deleted."""
        return self._engine.refresh()

    def budget(self) -> Outlook:
        """How full the window is, by what, and what a fold would take next."""
        return self._views.outlook()

    def room(self) -> Room:
        """What an answer to the agent may take of its window."""
        return self._look(lambda sight, _: answer_room(sight, self._views.room(), self._engine.counter.count))

    # What is shown

    def expand_details(self, index: PageIndex) -> None:
        """Open a page and the folders above it. Raises `InvalidOperation` if it is too large to be shown."""

        def planner(plan: Plan, sight: Sight) -> None:
            page = self._gate.page(sight, "expand_details", index)
            lifecycle.expand(plan, index)
            if not is_shown_whole(plan.state, page.key):
                check_room(plan.state, page, self._views.budget)
                plan.defer(page.key)

        self._act("expand_details", planner)

    def hide_details(self, index: PageIndex) -> None:
        """Show only the summary line of a page."""

        def planner(plan: Plan, sight: Sight) -> None:
            self._gate.page(sight, "hide_details", index)
            lifecycle.hide(plan, index)

        self._act("hide_details", planner)

    def archive(self, index: PageIndex, *, cold: bool = False) -> None:
        """Take a page out of the window; cold, out of the tree too, until `recall`."""

        def planner(plan: Plan, sight: Sight) -> None:
            self._gate.page(sight, "archive", index)
            lifecycle.archive(plan, index, cold=cold)

        self._act("archive", planner)

    def recall(self, index: PageIndex) -> PageIndex:
        """Bring a page back from the cold archive, with all that went with it."""

        def planner(plan: Plan, sight: Sight) -> PageIndex:
            page = self._gate.page(sight, "recall", index)
            top = plan.cold_top(page)
            if top is not None:
                self._gate.page(sight, "recall", plan.index(plan.home_of(top)))
            return lifecycle.recall(plan, index)

        return self._act("recall", planner)

    # Writing

    def create_detail_page(self, name: str, description: str, detail: str, parent: PageIndex) -> PageIndex:
        """Write a new page at the end of a folder; its index."""

        def planner(plan: Plan, sight: Sight) -> PageIndex:
            self._gate.page(sight, "create_detail_page", parent)
            index = tree.create_detail_page(plan, name, description, detail, parent)
            self._show(plan, index)
            return index

        return self._act("create_detail_page", planner)

    def create_contents_page(
        self, name: str, description: str, parent: PageIndex, children: Iterable[PageIndex] = ()
    ) -> PageIndex:
        """Make a new folder and gather pages of the same segment under it; its index."""

        def planner(plan: Plan, sight: Sight) -> PageIndex:
            above = self._gate.page(sight, "create_contents_page", parent)
            if isinstance(children, str) or not isinstance(children, Iterable):
                raise InvalidValue(f"children is {short_repr(children)}; a list of page indices is needed.")
            gathered = [self._gate.page(sight, "create_contents_page", child, takes_along=True) for child in children]
            return create_contents_page(plan, name, description, above, gathered)

        return self._act("create_contents_page", planner)

    def update_page(self, index: PageIndex, *, name: str | None = None, description: str | None = None) -> None:
        """Give a page another name or summary; None leaves it as it is."""
        self.rewrite(index, name=name, description=description)

    def set_detail(self, index: PageIndex, detail: str) -> None:
        """Give a text page another text."""
        self.rewrite(index, detail=detail)

    def rewrite(
        self, index: PageIndex, *, name: str | None = None, description: str | None = None, detail: str | None = None
    ) -> None:
        """Change name, summary and text of a page in one step; None leaves it as it is."""
        operation = "update_page" if detail is None else "set_detail"

        def planner(plan: Plan, sight: Sight) -> None:
            self._gate.page(sight, operation, index)
            tree.update_page(plan, index, name=name, description=description)
            if detail is not None:
                before = plan.require_page(index).header.body
                tree.set_detail(plan, index, detail)
                if plan.require_page(index).header.body != before:
                    plan.change(plan.require_page(index), author=plan.author())
                    self._show(plan, index)

        self._act(operation, planner)

    def move_page(
        self, source: PageIndex, target: PageIndex, before: PageIndex | None = None
    ) -> dict[PageIndex, PageIndex]:
        """Move a page with all below it into a folder; old → new indices if that is in another segment."""

        def planner(plan: Plan, sight: Sight) -> dict[PageIndex, PageIndex]:
            page = self._gate.page(sight, "move_page", source)
            folder = self._gate.page(sight, "move_page", target, takes_along=False)
            if before is not None:
                sight.require_page(before)
            return move_page(plan, page, folder, before)

        return self._act("move_page", planner)

    def remove_page(self, index: PageIndex) -> int:
        """Remove a page with all below it; how many pages went. Messages get a delete mark."""
        return self._act(
            "remove_page",
            lambda plan, sight: remove_page(plan, self._gate.page(sight, "remove_page", index)),
        )

    # Segments, for an agent that manages them

    def add_segment(self, name: str, description: str = "") -> Segment:
        """Add a segment of the agent's own; its id is given by the system."""

        def planner(plan: Plan, _: Sight) -> str:
            self._gate.managing("add_segment")
            return add_segment(plan, name, description)

        return self.get_segment(self._act("add_segment", planner))

    def remove_segment(self, segment_id: str) -> int:
        """Remove a segment with all its pages; how many went."""

        def planner(plan: Plan, sight: Sight) -> int:
            self._gate.segment(sight, "remove_segment", segment_id)
            return segments.remove_segment(plan, segment_id)

        return self._act("remove_segment", planner)

    def set_permission(self, segment_id: str, permission: Permission) -> None:
        """Set what agents may do in a segment."""

        def planner(plan: Plan, sight: Sight) -> None:
            self._gate.segment(sight, "set_permission", segment_id)
            if check_choice(Permission, permission, "permission") is Permission.PRIVATE:
                raise PermissionDenied(
                    f"operation 'set_permission' on segment {segment_id!r}: PRIVATE is the developer's"
                )
            segments.set_segment_permission(plan, segment_id, permission)

        self._act("set_permission", planner)

    # The way through the gate

    def _look(self, look: Callable[[Sight, State], T]) -> T:
        with self._engine.lock:
            state = self._engine.current()
            return look(Sight(state), state)

    def _act(self, operation: str, planner: Callable[[Plan, Sight], T]) -> T:
        """Plan, charge and commit as one entry of this agent's; the view follows at the next fold."""
        engine = self._engine
        with engine.lock:
            plan = engine.begin(self.actor)
            result = planner(plan, Sight(plan))
            charge(plan, self.quota)
            plan.defer()
            engine.commit(plan, operation)
            return result

    def _show(self, plan: Plan, index: PageIndex) -> None:
        """Quote what was written after the newest message, unless the model has just said it itself."""
        if self._shows:
            plan.defer(plan.require_page(index).key)

    def _above(self, operation: str, index: PageIndex) -> list[Page]:
        def look(sight: Sight, state: State) -> list[Page]:
            return [_handed(state, page) for page in sight.ancestors(self._gate.page(sight, operation, index))]

        return self._look(look)


def _known_filters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The filters of a search, if there are such. Raises `InvalidValue`."""
    known = Filters.__struct_fields__
    for name in given:
        if name not in known:
            raise InvalidValue(f"There is no filter {short_repr(name)}; filters are {', '.join(known)}.")
    return given


def _handed(state: State, record: PageRecord) -> Page:
    """A page as an agent gets it: it never sees a seq, which would count what it cannot see."""
    return to_page(state, record, seqs=False)


def _range(start: object, limit: object) -> tuple[int, int | None]:
    first = check_whole_number(start, "start")
    return first, None if limit is None else first + check_whole_number(limit, "limit")


class Windowing(Protocol):
    """What the tools need of windows."""

    def create(self, app: str, arguments: dict[str, Any]) -> str: ...
    def act(self, window: str, action: str, arguments: dict[str, Any]) -> str: ...
    def close(self, window: str, summary: str | None) -> str: ...


class Desk:
    """Everything one agent's tools need. `windows` gives its windows, or None while no app is registered.

    `beside` is for a model whose own talk is not the one of this context: what it calls does not stand in it.
    """

    def __init__(
        self,
        agent: AgentContext,
        windows: Callable[[], Windowing | None] = lambda: None,
        *,
        beside: bool = False,
    ) -> None:
        self.agent = agent if beside else agent.telling()
        self.windows = windows
        self._beside = beside

    def at_hand(self) -> set[PageIndex]:
        """What the model is answering just now and need not look for."""
        return set() if self._beside else self.agent.at_hand()
