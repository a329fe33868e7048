"""AgentContext: what the model itself may see and do. Every operation goes through one gate."""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from quire.agent import planning
from quire.agent.gate import Gate
from quire.agent.opening import Room, answer_room, check_room
from quire.agent.outline import contents, entry, every_page
from quire.agent.quota import Quota, charge, check_quota
from quire.agent.sight import Sight, at_hand
from quire.errors import InvalidOperation, InvalidValue, PermissionDenied, shown
from quire.pages import Page, PageIndex, Permission, Segment
from quire.plan import Plan
from quire.records import PageRecord
from quire.rendering.drawing import Drawing
from quire.rendering.outlook import Outlook
from quire.search.finding import Filters, Hit, find
from quire.search.scope import open_to_agents
from quire.state import State
from quire.system import ContextSystem, lifecycle, segments, tree
from quire.system.present import to_page, to_segment, to_text
from quire.system.rules import choice, whole_number
from quire.text import one_line
from quire.view.options import DEFAULT_BUDGET
from quire.view.steady import is_shown_whole

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
        outlook: Callable[[], Outlook] | None = None,
        window: Callable[[], int] = lambda: DEFAULT_BUDGET,
    ) -> None:
        if not isinstance(system, ContextSystem):
            raise InvalidValue(f"system is {shown(system)}; a quire.ContextSystem is needed.")
        if not isinstance(manage, bool):
            raise InvalidValue(f"manage is {shown(manage)}; True or False is needed.")
        self.actor = one_line(actor, "actor", 100, empty=False)
        self.quota = check_quota(Quota() if quota is None else quota)
        self._engine = system._engine
        self._gate = Gate(manage)
        self._outlook = outlook or partial(Drawing.beside(system).outlook, DEFAULT_BUDGET)
        self._window = window
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

    def find(self, query: str, limit: int = 10, **filters: Any) -> list[Hit]:
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
            first = whole_number(start, "start")
            return to_text(sight, page.header)[first : first + whole_number(length, "length")]

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
        return self._outlook()

    def room(self) -> Room:
        """What an answer to the agent may take of its window."""
        return self._look(lambda sight, _: answer_room(sight, self._window(), self._engine.counter.count))

    # What is shown

    def expand_details(self, index: PageIndex) -> None:
        """Open a page and the folders above it. Raises `InvalidOperation` if it is too large to be shown."""

        def planner(plan: Plan, sight: Sight) -> None:
            page = self._gate.page(sight, "expand_details", index)
            lifecycle.expand(plan, index)
            if not is_shown_whole(plan.state, page.key):
                check_room(plan.state, page, self._outlook().budget)
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
                raise InvalidValue(f"children is {shown(children)}; a list of page indices is needed.")
            gathered = [self._gate.page(sight, "create_contents_page", child, takes_along=True) for child in children]
            return planning.create_contents_page(plan, name, description, above, gathered)

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
                before = plan.live(index).header.body
                tree.set_detail(plan, index, detail)
                if plan.live(index).header.body != before:
                    plan.change(plan.live(index), author=plan.author())
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
                sight.live(before)
            return planning.move_page(plan, page, folder, before)

        return self._act("move_page", planner)

    def remove_page(self, index: PageIndex) -> int:
        """Remove a page with all below it; how many pages went. Messages get a delete mark."""
        return self._act(
            "remove_page",
            lambda plan, sight: planning.remove_page(plan, self._gate.page(sight, "remove_page", index)),
        )

    # Segments, for an agent that manages them

    def add_segment(self, name: str, description: str = "") -> Segment:
        """Add a segment of the agent's own; its id is given by the system."""

        def planner(plan: Plan, _: Sight) -> str:
            self._gate.managing("add_segment")
            return planning.add_segment(plan, name, description)

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
            if choice(Permission, permission, "permission") is Permission.PRIVATE:
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
            plan.defer(plan.live(index).key)

    def _above(self, operation: str, index: PageIndex) -> list[Page]:
        def look(sight: Sight, state: State) -> list[Page]:
            return [_handed(state, page) for page in sight.ancestors(self._gate.page(sight, operation, index))]

        return self._look(look)


def _known_filters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The filters of a search, if there are such. Raises `InvalidValue`."""
    known = Filters.__struct_fields__
    for name in given:
        if name not in known:
            raise InvalidValue(f"There is no filter {shown(name)}; filters are {', '.join(known)}.")
    return given


def _handed(state: State, record: PageRecord) -> Page:
    """A page as an agent gets it: it never sees a seq, which would count what it cannot see."""
    return to_page(state, record, seqs=False)


def _range(start: object, limit: object) -> tuple[int, int | None]:
    first = whole_number(start, "start")
    return first, None if limit is None else first + whole_number(limit, "limit")
