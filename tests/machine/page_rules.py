"""How the machine chooses and runs operations on pages, segments and windows, by the developer and by the agent."""

from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import note
from hypothesis.strategies import SearchStrategy

from quire import ContentsPage, Context, DetailPage, Lifecycle, Permission, Segment, SegmentType, Visibility
from tests.machine.observed import is_folded
from tests.machine.pages import text_page
from tests.machine.sidebyside import SideBySide
from tests.machine.state import ACTIVE, COLD, HIDDEN, HOT, Page, Refused

T = TypeVar("T")
Draw = Callable[[SearchStrategy[T]], T]

MAX_PAGES = 40
"""So many pages cover every rule; more only take longer to compare."""
NEVER = ("usr-999", "nope-1", "USR-1", "mem-01", "../../x", "mem-１", "mem-²", "mem-1\0", "", "-1")
"""Texts that are never the index of a page."""
NAMES = ("Plan", "Notes", "Go 语言", "a\nb", "x" * 200)
TEXTS = ("", "One line.", "User: hi\nAssistant: hello there", "词 " * 40)
EXTRA = ("doc", "usr-archive", "private")
"""The segments that come and go."""

numbers = st.integers(0, 99)
often = st.sampled_from((True, True, True, False))
names = st.sampled_from(NAMES * 6 + ("", "  ", "x" * 201, "a\0b"))
texts = st.sampled_from(TEXTS)
pins = st.sampled_from((None,) * 8 + (True, False))
LIVE = ("text",) * 4 + ("inner",) * 3 + ("said",) * 3
PICKS = (*LIVE, *LIVE, "cold", "cold", "hot", "hidden", "pinned", "root", "never")


class PageRules(SideBySide):
    """Operations on pages. A method is named after the word that a rule draws."""

    def pick(self, draw: Draw[Any], *kinds: str) -> str:
        """Return the index of a page of one of these kinds, or of any page."""
        model, pages = self.model, list(self.model.state.pages.values())
        are: dict[str, Callable[[Page], bool]] = {
            "text": lambda page: not page.folder and not page.role,
            "said": lambda page: bool(page.role) and page.lifecycle != COLD,
            "inner": lambda page: page.folder and not model.is_root(page),
            "folder": lambda page: page.folder and page.segment not in ("sys", "usr", "win"),
            "cold": lambda page: model.effective(page) == COLD and not page.marked,
            "hot": lambda page: model.effective(page) == HOT,
            "hidden": lambda page: page.visibility == HIDDEN,
            "pinned": lambda page: page.pinned,
            "root": model.is_root,
        }
        kind = draw(st.sampled_from(kinds or PICKS))
        if kind == "never":
            return str(draw(st.sampled_from(NEVER)))
        chosen = [page.index for page in pages if are[kind](page)] or [page.index for page in pages]
        return chosen[int(draw(numbers)) % len(chosen)]

    def _target(self, draw: Draw[Any]) -> str:
        """Return a folder for new pages, sometimes something else. The conversation has messages only."""
        index = self.pick(draw, *["folder"] * 20, "text", "root", "never")
        page = self.model.state.pages.get(index)
        return "mem-0" if page and page.segment == "usr" else index

    def _is_full(self) -> bool:
        return len(self.model.state.pages) >= MAX_PAGES

    # Texts and folders

    def _leaf(self, draw: Draw[Any]) -> None:
        what = draw(names), draw(texts), draw(texts), self._target(draw)
        pinned = draw(pins)
        if not self._is_full():
            self.step(
                "create_detail_page",
                lambda: self.model.create_detail_page(*what, pinned),
                lambda c: c.pages.create_detail_page(*what, pinned=pinned),
                *what,
            )

    def _gather(self, draw: Draw[Any]) -> None:
        """Create a folder, sometimes for some children of its parent, and sometimes for a page from elsewhere."""
        name, parent, pinned = draw(names), self._target(draw), draw(pins)
        inside = self.model.children(parent)
        gathered = draw(st.lists(st.sampled_from(inside), max_size=3)) if inside else []
        if not draw(often):
            gathered.append(self.pick(draw, "text", "inner"))
        if not self._is_full():
            self.step(
                "create_contents_page",
                lambda: self.model.create_contents_page(name, parent, gathered, pinned),
                lambda c: c.pages.create_contents_page(name, "", parent, gathered, pinned=pinned),
                *(name, parent, gathered, pinned),
            )

    def _given(self, draw: Draw[Any]) -> None:
        """Add a page with its own index, mostly a free one of its parent's segment."""
        parent, folder, pinned = self._target(draw), draw(st.booleans()), draw(pins)
        above = self.model.state.pages.get(parent)
        segment = above.segment if above and draw(often) else "mem"
        number = max(1, self.model.counters[segment] + draw(st.sampled_from((-1, 0, 0, 1, 3))))
        life = draw(st.sampled_from((*Lifecycle, *[ACTIVE] * 5)))
        page = text_page(
            f"{segment}-{number}", folder, draw(names), draw(texts), life, draw(st.sampled_from(Visibility))
        )
        kind = ContentsPage if folder else DetailPage
        given = kind(
            index=page.index, parent=parent, name=page.name, lifecycle=life, visibility=page.visibility, pinned=pinned
        )
        self.step(
            "add_page",
            lambda: self.model.add_page(page, parent, pinned=pinned),
            lambda c: c.pages.add_page(given, None if folder else page.detail),
            *(page, parent, pinned),
        )

    def _number(self, draw: Draw[Any]) -> None:
        """Generate an index and use it."""
        segment = draw(st.sampled_from(("mem", *EXTRA)))

        def call(context: Context) -> str:
            index = context.pages.generate_index(segment)
            return str(context.pages.add_page(DetailPage(index=index, parent=f"{segment}-0", name="Plan"), "text"))

        def wanted() -> str:
            index = self.model.next(self.model.segment(segment).id)
            page = text_page(index, False, "Plan", "text", ACTIVE, Visibility.EXPANDED)
            return self.model.add_page(page, f"{segment}-0", pinned=None)

        root = self.model.state.pages.get(f"{segment}-0")
        if root is None or self.model.effective(root) == ACTIVE:
            self.step("generate_index", wanted, call, segment)

    def _text(self, draw: Draw[Any]) -> None:
        index, name, text = self.pick(draw, "text", "inner", "cold", "never"), draw(st.none() | names), draw(texts)
        if index in self.model.state.pages and self.model.state.pages[index].role:
            return
        self.step(
            "update_page",
            lambda: self.model.update_page(index, name, text),
            lambda c: c.pages.update_page(index, name=name, description=text),
            *(index, name, text),
        )

    def _detail(self, draw: Draw[Any]) -> None:
        index, text = self.pick(draw, "text", "text", "text", "inner", "cold", "said"), draw(texts)
        page = self.model.state.pages.get(index)
        if page is None or page.role not in ("summary", "window"):  # their text is not the user's
            self._on("set_detail", index, text)

    def _on(self, operation: str, index: str, *more: Any) -> None:
        """Run an operation of the same name and arguments on the model and on the pages."""
        self.step(
            operation,
            lambda: getattr(self.model, operation)(index, *more),
            lambda c: getattr(c.pages, operation)(index, *more),
            *(index, *more),
        )

    def _move(self, draw: Draw[Any]) -> None:
        """Move a page anywhere, beside itself, or into its own subtree. A message only moves among its neighbours."""
        source = self.pick(draw, "text", "text", "inner", "inner", "cold", "pinned")
        page = self.model.state.pages.get(source)
        beside = page.parent if page and page.parent else source
        below = [inner.index for inner in self.model.below(page)[1:] if inner.folder] if page else []
        target = draw(st.sampled_from((self._target(draw), beside, beside, *below[:1])))
        if page is not None and page.role:
            if self.tree is not None and self.tree.chapters:
                return
            target = beside
        inside = self.model.children(target)
        before = draw(st.sampled_from((None, *inside, *inside, self.pick(draw, "text"))))
        self._on("move_page", source, target, before)

    def _remove(self, draw: Draw[Any]) -> None:
        self._on("remove_page", self.pick(draw, "text", "inner", "pinned", "root"))

    # What is shown

    def _hide(self, draw: Draw[Any]) -> None:
        index = self.pick(draw, *PICKS, *["pinned"] * 6)
        folded = self.tree is not None and is_folded(index, self.tree)
        self.step("hide", lambda: self.model.hide(index, folded=folded), lambda c: c.pages.hide(index), index)

    def _expand(self, draw: Draw[Any]) -> None:
        self._on("expand", self.pick(draw, *PICKS, "hidden", "hidden", "hot"))

    def _restore(self, draw: Draw[Any]) -> None:
        self._on("restore", self.pick(draw, *PICKS, "hot", "hot"))

    def _chapter(self, draw: Draw[Any]) -> None:
        """Open or close a chapter that a fold made."""
        chapters = sorted(self.tree.chapters) if self.tree else []
        if not chapters:
            return
        index, opens = draw(st.sampled_from(chapters)), draw(st.booleans())
        found = self.everywhere(lambda c: c.pages.expand(index) if opens else c.pages.hide(index))
        if not found.code and self.contexts[0].seq > self.model.seq:
            self.model.note_entry()
        self.edited = True
        self.compare()

    def _cold(self, draw: Draw[Any]) -> None:
        self._archive(self.pick(draw), cold=True)

    def _hot(self, draw: Draw[Any]) -> None:
        self._archive(self.pick(draw), cold=False)

    def _archive(self, index: str, *, cold: bool) -> None:
        self.step(
            "archive",
            lambda: self.model.archive(index, cold=cold),
            lambda c: c.pages.archive(index, cold=cold),
            *(index, cold),
        )

    def _recall(self, draw: Draw[Any]) -> None:
        index = self.pick(draw, *PICKS, *["cold"] * 20)
        self.step("recall", lambda: self.model.recall(index), lambda c: c.pages.recall(index) and None, index)

    def _pin(self, draw: Draw[Any]) -> None:
        self._on("pin", self.pick(draw))

    def _unpin(self, draw: Draw[Any]) -> None:
        self._on("unpin", self.pick(draw, *["pinned"] * 5, "text"))

    # Segments

    def _segment(self, draw: Draw[Any]) -> None:
        name = draw(st.sampled_from((*EXTRA, *EXTRA, "mem", "")))
        kind, permission = (
            draw(st.sampled_from((SegmentType.CUSTOM, SegmentType.TOOL))),
            draw(st.sampled_from(Permission)),
        )
        capacity = draw(st.sampled_from((0, 4_000)))
        segment = Segment(id=name, type=kind, permission=permission, max_capacity=capacity)
        self.step(
            "add_segment",
            lambda: self.model.add_segment(name, kind, permission, capacity),
            lambda c: c.pages.add_segment(segment) and None,
            *(name, kind, permission, capacity),
        )

    def _drop_segment(self, draw: Draw[Any]) -> None:
        self._on("remove_segment", draw(st.sampled_from((*EXTRA, "usr", "nope"))))

    def _rename_segment(self, draw: Draw[Any]) -> None:
        name, new_name = draw(st.sampled_from(("mem", *EXTRA))), draw(st.sampled_from((None, "Memory", "Notes")))
        description, capacity = (
            draw(st.sampled_from((None, "", "What it keeps"))),
            draw(st.sampled_from((None, 0, 100))),
        )
        self.step(
            "update_segment",
            lambda: self.model.update_segment(name, new_name, description, capacity),
            lambda c: c.pages.update_segment(name, name=new_name, description=description, max_capacity=capacity),
            *(name, new_name, description, capacity),
        )

    def _permission(self, draw: Draw[Any]) -> None:
        name, permission = draw(st.sampled_from(("usr", "mem", *EXTRA))), draw(st.sampled_from(Permission))
        self.step(
            "set_segment_permission",
            lambda: self.model.set_permission(name, permission),
            lambda c: c.pages.set_segment_permission(name, permission),
            *(name, permission),
        )

    # Windows

    def _window(self, draw: Draw[Any]) -> None:
        """Open a window, write in it, refresh it or close it."""
        window, text = draw(st.sampled_from(("pad-1", "pad-2"))), draw(st.sampled_from(("milk", "茶")))
        model, what = self.model, draw(st.sampled_from(("open", "write", "write", "refresh", "close")))
        if what == "open":
            self.step(
                "window open",
                lambda: model.open_window(window, text),
                lambda c: c.windows.open("pad", {"text": text}, window_id=window) and None,
                *(window, text),
            )
        elif what == "close":
            shut: Callable[[], None] = lambda: model.close_window(window, text)  # noqa: E731
            self.step("window close", shut, lambda c: c.windows.close(window, text), window)
        elif what == "write":
            self._use(window, text, lambda c: c.windows.act(window, "write", {"text": text}) and None)
        else:
            shown = {each.id: str(each.content) for each in self.contexts[0].windows.list()}
            self._use(window, shown.get(window, ""), lambda c: c.windows.refresh(window) and None)

    def _use(self, window: str, text: str, call: Callable[[Context], object]) -> None:
        """Let the app of a window save a text. An undo does not reach into an app, so there may be no entry."""
        note(f"{self.fork}: {window} saves {text!r}")
        try:
            with self.model.all_or_nothing():
                self.model.write_window(window, text)
        except Refused:
            assert self.everywhere(call).code
        else:
            assert not self.everywhere(call).code
            if self.contexts[0].seq > self.model.seq:
                self.model.note_entry()
        self.edited = True
        self.compare()

    # The agent

    def _agent(self, draw: Draw[Any]) -> None:
        """Let the agent work on a page of its own segments: done, or refused for want of a right."""
        what = draw(st.sampled_from(("hide", "update_page", "set_detail", "archive", "remove_page", "create")))
        index = self.pick(draw, "text", "text", "inner", "pinned", "root")
        if self.model.state.pages[index].role:
            return
        if what == "create":
            index = self._target(draw)
        wanted: dict[str, Callable[[], object]] = {
            "hide": lambda: self.model.hide(index),
            "update_page": lambda: self.model.update_page(index, None, "By the agent"),
            "set_detail": lambda: self.model.set_detail(index, "By the agent"),
            "archive": lambda: self.model.archive(index, cold=False),
            "remove_page": lambda: self.model.remove_page(index),
            "create": lambda: self.model.create_detail_page("Note", "", "By the agent", index, None),
        }
        call: dict[str, Callable[[Context], object]] = {
            "hide": lambda c: c.agent.hide_details(index),
            "update_page": lambda c: c.agent.update_page(index, None, "By the agent"),
            "set_detail": lambda c: c.agent.set_detail(index, "By the agent"),
            "archive": lambda c: c.agent.archive(index),
            "remove_page": lambda c: c.agent.remove_page(index),
            "create": lambda c: c.agent.create_detail_page("Note", "", "By the agent", index),
        }

        def allowed() -> object:
            self.model.allow(index, writing=what != "hide", hiding=True)
            return wanted[what]()

        self.step(f"agent {what}", allowed, call[what], index)
