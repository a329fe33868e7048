"""Every operation in any order, on three backends and on a plain model at once.

Each step is applied to the model and to memory, file and SQLite: all refuse it and nothing changes, or all agree with
the model on the whole tree. `check()` is empty after every step, and the documents are the same bytes.
"""

from typing import Any, Literal

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from quire import ContentsPage, ContextSystem, DetailPage, Lifecycle, Permission, Segment, SegmentType, Visibility
from tests.sidebyside import Pick, SideBySide

MAX_PAGES = 40
"""A few dozen pages show every rule; more only take longer to compare."""

SEGMENTS = ("sys", "usr", "mem", "usr-archive", "win")
NAMES = ("Plan", "Notes", "Go 语言", "a\nb", "x" * 200)
REFUSED_NAMES = ("", "  ", "x" * 201, "a\0b")
TEXTS = ("", "One line.", "User: hi\nAssistant: hello there", "词 " * 40)

numbers = st.integers(0, 99)
picks = st.builds(
    Pick,
    st.sampled_from(
        ("live",) * 5 + ("leaf",) * 3 + ("inner",) * 4 + ("cold", "hot", "pinned", "root", "gone", "never")
    ),
    numbers,
)
folders = st.builds(Pick, st.sampled_from(("folder",) * 8 + ("inner",) * 8 + ("live", "never")), numbers)
names = st.sampled_from(NAMES * 6 + REFUSED_NAMES)
texts = st.sampled_from(TEXTS)
pins = st.sampled_from((None,) * 8 + (True, False))
segments = st.sampled_from(SEGMENTS * 4 + ("", "nope"))
often = st.sampled_from((True, True, True, False))


class Machine(SideBySide):
    """The rules."""

    @initialize()
    def begin(self) -> None:
        """Three segments; a chapter with a section, leaves in each and beside them."""
        for name, kind, permission in (
            ("sys", SegmentType.SYSTEM, Permission.READ_ONLY),
            ("usr", SegmentType.USER, Permission.READ_WRITE),
            ("mem", SegmentType.CUSTOM, Permission.READ_WRITE),
        ):
            self._add_segment(name, kind, permission, 0, compare=False)
        for parent, is_folder in (
            ("mem-0", True),
            ("mem-1", True),
            ("mem-2", False),
            ("mem-1", False),
            ("mem-0", False),
            ("mem-0", False),
            ("mem-0", True),
            ("usr-0", False),
        ):
            if is_folder:
                self._create_contents_page("Chapter", parent, [], None, compare=False)
            else:
                self._create_detail_page("Leaf", "One line.", "text", parent, None, compare=False)
        self.compare()

    def has_room(self) -> bool:
        return len(self.model.state.pages) < MAX_PAGES

    # Segments

    @precondition(has_room)
    @rule(
        name=segments,
        kind=st.sampled_from(SegmentType),
        permission=st.sampled_from(Permission),
        capacity=st.sampled_from((0, 4_000)),
    )
    def add_segment(self, name: str, kind: SegmentType, permission: Permission, capacity: int) -> None:
        self._add_segment(name, kind, permission, capacity)

    def _add_segment(
        self, name: str, kind: SegmentType, permission: Permission, capacity: int, *, compare: bool = True
    ) -> None:
        segment = Segment(id=name, type=kind, permission=permission, max_capacity=capacity)
        self.step(
            "add_segment",
            lambda: self.model.add_segment(name, kind, permission, capacity),
            lambda system: system.add_segment(segment) and None,
            name,
            kind,
            permission,
            capacity,
            compare=compare,
        )

    @rule(
        change=st.sampled_from(("remove", "update", "permission", "number")),
        name=segments,
        new_name=st.sampled_from((None, "Memory", "Notes")),
        description=st.sampled_from((None, "", "What the agent keeps")),
        capacity=st.sampled_from((None, 0, 100)),
        permission=st.sampled_from(Permission),
    )
    def change_segment(
        self,
        change: Literal["remove", "update", "permission", "number"],
        name: str,
        new_name: str | None,
        description: str | None,
        capacity: int | None,
        permission: Permission,
    ) -> None:
        model = self.model
        match change:
            case "remove":
                self.step("remove_segment", lambda: model.remove_segment(name), lambda s: s.remove_segment(name), name)
            case "update":
                self.step(
                    "update_segment",
                    lambda: model.update_segment(name, new_name, description, capacity),
                    lambda s: s.update_segment(name, name=new_name, description=description, max_capacity=capacity),
                    name,
                    new_name,
                    description,
                    capacity,
                )
            case "permission":
                self.step(
                    "set_segment_permission",
                    lambda: model.set_permission(name, permission),
                    lambda s: s.set_segment_permission(name, permission),
                    name,
                    permission,
                )
            case "number":
                self.step("generate_index", lambda: model.generate_index(name), lambda s: s.generate_index(name), name)

    # Pages

    @precondition(has_room)
    @rule(name=names, description=texts, detail=texts, parent=folders, pinned=pins)
    def create_detail_page(self, name: str, description: str, detail: str, parent: Pick, pinned: bool | None) -> None:
        self._create_detail_page(name, description, detail, self.pick(parent), pinned)

    def _create_detail_page(
        self, name: str, description: str, detail: str, parent: str, pinned: bool | None, *, compare: bool = True
    ) -> None:
        self.step(
            "create_detail_page",
            lambda: self.model.create_detail_page(name, description, detail, parent, pinned),
            lambda system: system.create_detail_page(name, description, detail, parent, pinned=pinned),
            name,
            description,
            detail,
            parent,
            pinned,
            compare=compare,
        )

    @precondition(has_room)
    @rule(
        name=names,
        parent=folders,
        children=st.lists(numbers, max_size=3),
        strangers=st.lists(picks, max_size=1),
        pinned=pins,
    )
    def create_contents_page(
        self, name: str, parent: Pick, children: list[int], strangers: list[Pick], pinned: bool | None
    ) -> None:
        above = self.pick(parent)
        inside = self.model.children(above)
        gathered = [inside[number % len(inside)] for number in children if inside]
        gathered += [self.pick(stranger) for stranger in strangers]
        self._create_contents_page(name, above, gathered, pinned)

    def _create_contents_page(
        self, name: str, parent: str, children: list[str], pinned: bool | None, *, compare: bool = True
    ) -> None:
        self.step(
            "create_contents_page",
            lambda: self.model.create_contents_page(name, parent, children, pinned),
            lambda system: system.create_contents_page(name, "", parent, children, pinned=pinned),
            name,
            parent,
            children,
            pinned,
            compare=compare,
        )

    @precondition(has_room)
    @rule(
        segment=segments,
        own=often,
        ahead=st.integers(-2, 3),
        parent=folders,
        folder=st.booleans(),
        name=names,
        detail=texts,
        lifecycle=st.sampled_from((Lifecycle.ACTIVE,) * 6 + (Lifecycle.HOT_ARCHIVED, Lifecycle.COLD_ARCHIVED)),
        visibility=st.sampled_from(Visibility),
        pinned=pins,
    )
    def add_page(
        self,
        segment: str,
        own: bool,
        ahead: int,
        parent: Pick,
        folder: bool,
        name: str,
        detail: str,
        lifecycle: Lifecycle,
        visibility: Visibility,
        pinned: bool | None,
    ) -> None:
        above = self.pick(parent)
        inside = self.model.state.pages.get(above)
        segment = inside.segment if inside and own else segment
        index = f"{segment}-{max(0, self.model.counters.get(segment, 1) + ahead)}"
        common: dict[str, Any] = {
            "index": index,
            "parent": above,
            "name": name,
            "lifecycle": lifecycle,
            "visibility": visibility,
            "pinned": pinned,
        }
        page = ContentsPage(**common) if folder else DetailPage(**common)
        self.step(
            "add_page",
            lambda: self.model.add_page(
                index,
                above,
                folder=folder,
                name=name,
                detail="" if folder else detail,
                lifecycle=lifecycle,
                visibility=visibility,
                pinned=pinned,
            ),
            lambda system: system.add_page(page, None if folder else detail),
            page,
            detail,
        )

    @rule(who=picks, name=st.none() | names, description=st.none() | texts, detail=st.none() | texts)
    def edit(self, who: Pick, name: str | None, description: str | None, detail: str | None) -> None:
        index = self.pick(who)
        if detail is None:
            self.step(
                "update_page",
                lambda: self.model.update_page(index, name, description),
                lambda system: system.update_page(index, name=name, description=description),
                index,
                name,
                description,
            )
        else:
            self.step(
                "set_detail",
                lambda: self.model.set_detail(index, detail),
                lambda system: system.set_detail(index, detail),
                index,
                detail,
            )

    @rule(who=picks, into=folders, where=st.sampled_from(("end", "before", "elsewhere")), number=numbers, other=picks)
    def move_page(self, who: Pick, into: Pick, where: str, number: int, other: Pick) -> None:
        self._move(self.pick(who), self.pick(into), where, number, other)

    @rule(who=picks, where=st.sampled_from(("end", "before", "before")), number=numbers, other=picks)
    def move_among_siblings(self, who: Pick, where: str, number: int, other: Pick) -> None:
        source = self.pick(who)
        page = self.model.state.pages.get(source)
        self._move(source, page.parent if page and page.parent else source, where, number, other)

    @rule(who=st.builds(Pick, st.just("inner"), numbers), number=numbers)
    def move_into_its_own_subtree(self, who: Pick, number: int) -> None:
        source = self.pick(who)
        below = [page.index for page in self.model.below(self.model.state.pages[source]) if page.folder]
        self._move(source, below[number % len(below)] if below else source, "end", 0, who)

    def _move(self, source: str, target: str, where: str, number: int, other: Pick) -> None:
        inside = self.model.children(target)
        before = self.pick(other) if where == "elsewhere" else None
        if where == "before" and inside:
            before = inside[number % len(inside)]
        self.step(
            "move_page",
            lambda: self.model.move_page(source, target, before),
            lambda system: system.move_page(source, target, before),
            source,
            target,
            before,
        )

    @rule(who=picks)
    def remove_page(self, who: Pick) -> None:
        index = self.pick(who)
        self.step("remove_page", lambda: self.model.remove_page(index), lambda s: s.remove_page(index), index)

    # What is shown

    @rule(who=picks, what=st.sampled_from(("expand", "hide", "hide", "restore")))
    def show(self, who: Pick, what: Literal["expand", "hide", "restore"]) -> None:
        index = self.pick(who)
        act = {"expand": self.model.expand, "hide": self.model.hide, "restore": self.model.restore}[what]
        self.step(what, lambda: act(index), lambda system: getattr(system, what)(index), index)

    @rule(who=picks, cold=st.booleans())
    def archive(self, who: Pick, cold: bool) -> None:
        index = self.pick(who)
        self.step(
            "archive",
            lambda: self.model.archive(index, cold=cold),
            lambda system: system.archive(index, cold=cold),
            index,
            cold,
        )

    @rule(who=picks, cold=often)
    def recall(self, who: Pick, cold: bool) -> None:
        index = self.pick(who._replace(kind="cold") if cold else who)
        self.step("recall", lambda: self.model.recall(index), lambda system: system.recall(index) and None, index)

    @rule(who=picks, pinned=often, up=st.booleans())
    def pin_or_unpin(self, who: Pick, pinned: bool, up: bool) -> None:
        if up:
            index = self.pick(who._replace(kind="pinned") if pinned else who)
            self.step("unpin", lambda: self.model.unpin(index), lambda system: system.unpin(index), index)
        else:
            index = self.pick(who)
            self.step("pin", lambda: self.model.pin(index), lambda system: system.pin(index), index)

    # History and documents

    @rule(back=st.integers(0, 3))
    def undo_lately(self, back: int) -> None:
        self._undo(self.model.seq - back)

    @rule(back=st.integers(-1, 60))
    def undo(self, back: int) -> None:
        self._undo(max(0, self.model.seq - back))

    def _undo(self, seq: int) -> None:
        self.step("undo", lambda: self.model.undo(seq), lambda system: system.undo(seq), seq)

    @rule(number=numbers, keep=st.booleans())
    def document(self, number: int, keep: bool) -> None:
        """Keep a document of this moment, or go back to a kept one."""
        if keep or not self.saved:
            self.saved.append((self.backends[0].system.marshal(), self.model.saved()))
        else:
            data, saved = self.saved[number % len(self.saved)]
            self.step("unmarshal", lambda: self.model.load(saved), lambda system: system.unmarshal(data), number)

    # What changes nothing

    @rule(
        what=st.sampled_from(("evict", "reopen", "move")),
        who=picks,
        keep=st.integers(0, 3),
        backend=st.sampled_from((1, 2)),
        kind=st.sampled_from(("file", "sqlite")),
    )
    def handle(self, what: str, who: Pick, keep: int, backend: int, kind: str) -> None:
        """Forget pages, open everything again, or move one backend to another storage."""
        index = self.pick(who)
        if what == "move":
            self.backends[backend].move_to(self.opener(kind))
        elif what == "reopen":
            self.model.reopen()
            for each in self.backends:
                each.reopen()
        else:
            for each in self.backends:
                forget(each.system, index, keep)
        self.compare()


def forget(system: ContextSystem, index: str, keep: int) -> None:
    """Evict a page, then all but a few."""
    system.evict_page(index)
    system.evict_lru(keep)


def test_the_same_trace_gives_the_same_state_everywhere(request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    profile = settings(
        max_examples=2_000 if long else 120,
        stateful_step_count=100 if long else 50,
        derandomize=not long,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(Machine, settings=profile)
