"""Every operation in any order, on three backends and on a plain model.

Each step is applied to the model and to memory, file and SQLite. Either all refuse it and nothing changes, or all agree
with the model on the whole tree. `check()` is empty after every step, and the documents are the same bytes.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import given, note, settings
from hypothesis.stateful import initialize, precondition, rule
from hypothesis.strategies import SearchStrategy

from quire import ContentsPage, DetailPage, Lifecycle, Permission, Segment, SegmentType, Visibility
from tests.machines import run_machine
from tests.sidebyside import Pick, SideBySide

T = TypeVar("T")

MAX_PAGES = 24
"""Two dozen pages cover every rule; more only take longer to compare."""

SEGMENTS = ("sys", "usr", "mem", "usr-archive", "win")
NAMES = ("Plan", "Notes", "Go 语言", "a\nb", "x" * 200)
REFUSED_NAMES = ("", "  ", "x" * 201, "a\0b")
TEXTS = ("", "One line.", "User: hi\nAssistant: hello there", "词 " * 40)

Draw = Callable[[SearchStrategy[T]], T]

numbers = st.integers(0, 99)
picks = st.builds(
    Pick,
    st.sampled_from(
        ("live",) * 5 + ("leaf",) * 3 + ("inner",) * 4 + ("cold", "hot", "hidden", "pinned", "root", "gone", "never")
    ),
    numbers,
)
folders = st.builds(Pick, st.sampled_from(("folder",) * 8 + ("inner",) * 8 + ("live", "never")), numbers)
names = st.sampled_from(NAMES * 6 + REFUSED_NAMES)
texts = st.sampled_from(TEXTS)
pins = st.sampled_from((None,) * 8 + (True, False))
segments = st.sampled_from(SEGMENTS * 3 + ("usr",) * 5 + ("", "nope"))
often = st.sampled_from((True, True, True, False))


class Machine(SideBySide):
    """The rules, of seven kinds. Within a kind the operations are weighted, so that trees grow deep."""

    @initialize()
    def begin(self) -> None:
        """Create three segments; a chapter with a section, and leaves in and next to each."""
        for name, kind in (("sys", SegmentType.SYSTEM), ("usr", SegmentType.USER), ("mem", SegmentType.CUSTOM)):
            self._add_segment(name, kind, Permission.READ_WRITE, 0, compare=False)
        for parent in ("mem-0", "mem-1", "usr-0"):
            self._create_contents_page("Chapter", parent, [], None, compare=False)
        for parent in ("mem-2", "mem-1", "mem-0", "mem-0", "usr-1"):
            self._create_detail_page("Leaf", "One line.", "text", parent, None, compare=False)
        self.compare()

    def has_room(self) -> bool:
        return len(self.model.state.pages) < MAX_PAGES

    @precondition(has_room)
    @rule(data=st.data(), what=st.sampled_from(("leaf", "leaf", "folder", "gather", "given", "text", "detail")))
    def write(self, data: st.DataObject, what: str) -> None:
        """Create pages and change texts."""
        draw = data.draw
        match what:
            case "leaf":
                name, description, detail, pinned = draw(names), draw(texts), draw(texts), draw(pins)
                self._create_detail_page(name, description, detail, self.pick(draw(folders)), pinned)
            case "folder":
                self._create_contents_page(draw(names), self.pick(draw(folders)), [], draw(pins))
            case "gather":
                self._gather(draw)
            case "given":
                self._add_page(draw)
            case "text":
                self._update_page(self.pick(draw(picks)), draw(st.none() | names), draw(st.none() | texts))
            case "detail":
                self._set_detail(self.pick(draw(picks)), draw(texts))

    @rule(data=st.data(), what=st.sampled_from(("anywhere", "beside", "inside") * 2 + ("beside", "remove")))
    def shape(self, data: st.DataObject, what: str) -> None:
        """Move and remove pages."""
        draw = data.draw
        who = draw(picks)
        source = self.pick(who._replace(kind="inner") if what == "inside" else who)
        page = self.model.state.pages.get(source)
        match what:
            case "anywhere":
                self._move(source, self.pick(draw(folders)), draw)
            case "beside":
                self._move(source, page.parent if page and page.parent else source, draw)
            case "inside":
                below = [inner.index for inner in self.model.below(page)[1:] if inner.folder] if page else []
                self._move(source, draw(st.sampled_from(below)) if below else source, draw)
            case "remove":
                self.step(
                    "remove_page", lambda: self.model.remove_page(source), lambda s: s.remove_page(source), source
                )

    @rule(data=st.data(), what=st.sampled_from(("hide", "open")))
    def show(self, data: st.DataObject, what: str) -> None:
        """Change the visibility."""
        draw = data.draw
        model, who = self.model, draw(picks)
        if what == "open":
            who = who._replace(kind=draw(st.sampled_from(("hot", "hidden", who.kind))))
            what = draw(st.sampled_from(("expand", "restore")))
        index = self.pick(who)
        match what:
            case "hide":
                self.step("hide", lambda: model.hide(index), lambda s: s.hide(index), index)
            case "expand":
                self.step("expand", lambda: model.expand(index), lambda s: s.expand(index), index)
            case "restore":
                self.step("restore", lambda: model.restore(index), lambda s: s.restore(index), index)

    @rule(data=st.data(), what=st.sampled_from(("cold", "recall", "pin") * 2 + ("cold", "hot")))
    def store(self, data: st.DataObject, what: str) -> None:
        """Use the archive and pins."""
        draw = data.draw
        model, who = self.model, draw(picks)
        match what:
            case "hot" | "cold":
                index, cold = self.pick(who), what == "cold"
                self.step(
                    "archive",
                    lambda: model.archive(index, cold=cold),
                    lambda s: s.archive(index, cold=cold),
                    index,
                    cold,
                )
            case "recall":
                index = self.pick(who._replace(kind="cold") if draw(often) else who)
                self.step("recall", lambda: model.recall(index), lambda s: s.recall(index) and None, index)
            case "pin":
                self._pin_or_unpin(who, draw)

    @rule(back=st.sampled_from((0,) * 8 + (1,) * 4) | st.integers(-1, 40))
    def undo(self, back: int) -> None:
        """Undo any entry, most often the last."""
        seq = max(0, self.model.seq - back)
        self.step("undo", lambda: self.model.undo(seq), lambda system: system.undo(seq), seq)

    @rule(keep=st.booleans(), number=numbers)
    def document(self, keep: bool, number: int) -> None:
        """Store a document of the current state, or go back to a stored one."""
        if keep or not self.saved:
            self.saved.append((self.backends[0].system.marshal(), self.model.saved()))
        else:
            document, saved = self.saved[number % len(self.saved)]
            self.step("unmarshal", lambda: self.model.load(saved), lambda s: s.unmarshal(document), number)

    @rule(
        data=st.data(),
        what=st.sampled_from(
            ("add", "add", "remove", "update", "permission", "permission", "number", "evict", "reopen", "move")
        ),
    )
    def around(self, data: st.DataObject, what: str) -> None:
        """Change segments, a handle or its storage."""
        draw = data.draw
        model, name = self.model, draw(segments)
        match what:
            case "add":
                kind, permission = draw(st.sampled_from(SegmentType)), draw(st.sampled_from(Permission))
                self._add_segment(name, kind, permission, draw(st.sampled_from((0, 4_000))))
            case "remove":
                self.step("remove_segment", lambda: model.remove_segment(name), lambda s: s.remove_segment(name), name)
            case "update":
                self._update_segment(name, draw)
            case "permission":
                permission = draw(st.sampled_from(Permission))
                self.step(
                    "set_segment_permission",
                    lambda: model.set_permission(name, permission),
                    lambda s: s.set_segment_permission(name, permission),
                    name,
                    permission,
                )
            case "number":
                self.step("generate_index", lambda: model.generate_index(name), lambda s: s.generate_index(name), name)
            case _:
                self._handle(what, draw)

    # One operation each

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

    def _update_segment(self, name: str, draw: Draw[Any]) -> None:
        new_name = draw(st.sampled_from((None, "Memory", "Notes")))
        description = draw(st.sampled_from((None, "", "What the agent keeps")))
        capacity = draw(st.sampled_from((None, 0, 100)))
        self.step(
            "update_segment",
            lambda: self.model.update_segment(name, new_name, description, capacity),
            lambda system: system.update_segment(name, name=new_name, description=description, max_capacity=capacity),
            name,
            new_name,
            description,
            capacity,
        )

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

    def _gather(self, draw: Draw[Any]) -> None:
        """Create a folder for some children of a folder, and sometimes for a page from elsewhere."""
        parent = self.pick(draw(folders))
        inside = self.model.children(parent)
        gathered = draw(st.lists(st.sampled_from(inside), max_size=3)) if inside else []
        if not draw(often):
            gathered.append(self.pick(draw(picks)))
        self._create_contents_page(draw(names), parent, gathered, draw(pins))

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

    def _add_page(self, draw: Draw[Any]) -> None:
        """Add a page with its own index: mostly an unused one of its parent's segment."""
        parent, detail, folder = self.pick(draw(folders)), draw(texts), draw(st.booleans())
        above = self.model.state.pages.get(parent)
        segment = above.segment if above and draw(often) else draw(segments)
        number = max(0, self.model.counters.get(segment, 1) + draw(st.integers(-2, 3)))
        fields: dict[str, Any] = {
            "name": draw(names),
            "lifecycle": draw(st.sampled_from((*Lifecycle, *[Lifecycle.ACTIVE] * 5))),
            "visibility": draw(st.sampled_from(Visibility)),
            "pinned": draw(pins),
        }
        index = f"{segment}-{number}"
        page = (ContentsPage if folder else DetailPage)(index=index, parent=parent, **fields)
        self.step(
            "add_page",
            lambda: self.model.add_page(index, parent, folder=folder, detail="" if folder else detail, **fields),
            lambda system: system.add_page(page, None if folder else detail),
            index,
            parent,
            fields,
            detail,
        )

    def _update_page(self, index: str, name: str | None, description: str | None) -> None:
        self.step(
            "update_page",
            lambda: self.model.update_page(index, name, description),
            lambda system: system.update_page(index, name=name, description=description),
            index,
            name,
            description,
        )

    def _set_detail(self, index: str, detail: str) -> None:
        self.step(
            "set_detail",
            lambda: self.model.set_detail(index, detail),
            lambda system: system.set_detail(index, detail),
            index,
            detail,
        )

    def _move(self, source: str, target: str, draw: Draw[Any]) -> None:
        inside = self.model.children(target)
        before = draw(st.none() | st.sampled_from(inside)) if inside else None
        if not draw(often):
            before = self.pick(draw(picks))
        self.step(
            "move_page",
            lambda: self.model.move_page(source, target, before),
            lambda system: system.move_page(source, target, before),
            source,
            target,
            before,
        )

    def _pin_or_unpin(self, who: Pick, draw: Draw[Any]) -> None:
        if draw(st.booleans()):
            index = self.pick(who)
            self.step("pin", lambda: self.model.pin(index), lambda system: system.pin(index), index)
        else:
            index = self.pick(who._replace(kind="pinned") if draw(often) else who)
            self.step("unpin", lambda: self.model.unpin(index), lambda system: system.unpin(index), index)

    def _handle(self, what: str, draw: Draw[Any]) -> None:
        """Drop cached pages, open everything again, or move one backend to another storage: nothing may change."""
        note(what)
        index, keep = self.pick(draw(picks)), draw(st.integers(0, 3))
        if what == "move":
            others = range(len(self.kinds))[1:] or range(1)
            which, kind = draw(st.sampled_from(others)), self.kinds[draw(st.sampled_from(others))]
            self.backends[which].move_to(self.opener(kind))
        elif what == "reopen":
            self.model.reopen()
            for backend in self.backends:
                backend.reopen()
        else:
            for backend in self.backends:
                backend.system.evict_page(index)
                backend.system.evict_lru(keep)
        self.compare()


def test_the_same_trace_gives_the_same_state_everywhere(request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    run_machine(Machine, examples=200 if long else 5, steps=100 if long else 50, derandomize=not long)


class PostgresMachine(Machine):
    kinds = ("memory", "postgres")


def test_the_same_trace_gives_the_same_state_in_postgres(request: pytest.FixtureRequest) -> None:
    long = bool(request.config.getoption("--long", default=False))
    run_machine(PostgresMachine, examples=100 if long else 1, steps=60 if long else 25, derandomize=not long)


@settings(max_examples=1, derandomize=True, database=None)
@given(st.none())
def test_the_opening_of_a_page_is_never_undone(nothing: None) -> None:
    """Undo closes the folder that an `expand` opened. The page itself is not changed and can be undone."""
    machine = Machine()
    try:
        machine.begin()
        model = machine.model
        machine.step("hide", lambda: model.hide("usr-1"), lambda s: s.hide("usr-1"), "usr-1")
        machine.step("expand", lambda: model.expand("usr-2"), lambda s: s.expand("usr-2"), "usr-2")
        opening = model.seq
        machine.undo(0)
        machine.undo(0)
        assert [entry.pages for entry in machine.backends[0].system.history(opening - 1)] == [
            ("usr-1", "usr-2"),
            ("usr-1",),
            ("usr-1",),
        ]
        assert model.page("usr-2").opened == opening
        machine.undo(model.seq - 11)
        assert "usr-2" in model.state.gone
    finally:
        machine.teardown()
