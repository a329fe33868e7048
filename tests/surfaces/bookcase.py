"""A context with every kind of page in every state, under every permission, for the tests of agents."""

from collections.abc import Iterator
from copy import copy
from itertools import count

from quire import Context, ContextSystem, MemoryStorage, Permission, Quota, Segment, SegmentType, ToolCall
from tests.books import WordCounter
from tests.surfaces.agent_rights import PERMISSIONS, Leaf, PermissionName, Place, State

TYPES = ("SYSTEM", "USER", "TOOL", "CUSTOM")


_NUMBERS = count(1)


class Bookcase:
    """One context, its pages as the test created them, and an agent with its tools.

    In a `quiet` one, nothing in the conversation is pinned or waits for a result.
    """

    def __init__(self, conversation: PermissionName, *, manage: bool = False, quiet: bool = False) -> None:
        self._quiet = quiet
        self.ctx = Context(ContextSystem(MemoryStorage(), "case", clock=lambda: 1_000, counter=WordCounter()))
        self.pages: list[Leaf] = []
        self.talk = Place("usr", "USER", conversation, conversation=True, holds_pins=not quiet)
        self.places = [self.talk, *_places()]
        for place in self.places:
            made = "READ_WRITE" if place.permission == "PRIVATE" or place.conversation else place.permission
            segment = Segment(id=place.id, type=SegmentType[place.type], permission=Permission[made])
            self.ctx.pages.add_segment(segment)
        self._converse()
        for place in self.places:
            if not place.conversation:
                self._furnish(place)
            if place.permission == "PRIVATE" or place.conversation:
                self.ctx.pages.set_segment_permission(place.id, Permission[place.permission])
        if not quiet:
            self._wait()
        self._manage = manage
        self.equip()

    def equip(self) -> None:
        """Make the agent of the context and its tools."""
        self.agent = self.ctx.as_agent(manage=self._manage, quota=Quota(calls=1 << 40))
        self.tools = self.ctx.tools_of(self.agent)

    def fork(self) -> "Bookcase":
        """Return a copy, for changes that are not kept."""
        case = copy(self)
        case.ctx = self.ctx.fork(f"fork {next(_NUMBERS)}")
        case.equip()
        return case

    def parent_of(self, page: Leaf) -> Leaf | None:
        """Return the page's folder, as the test created it."""
        return next((other for other in self.pages if other.index == page.parent), None)

    def digest(self) -> tuple[object, ...]:
        """Return everything that can be seen of the context."""
        return self.ctx.pages.marshal(), self.ctx.seq, list(self.ctx.messages(all=True))

    def _furnish(self, place: Place) -> None:
        pages, root = self.ctx.pages, f"{place.id}-0"
        self._note(Leaf(root, "root", place, None, folder=True, above_pinned=place.holds_pins))
        for state in ("expanded", "hidden", "hot", "cold"):
            self._folder(place, root, state)
            self._leaf(place, root, state)
        hidden = self._folder(place, root, "expanded", kind="closed folder")
        self._leaf(place, hidden.index, "below hidden", above=(hidden.index, root))
        pages.hide(hidden.index)
        away = self._folder(place, root, "expanded", kind="archived folder")
        self._leaf(place, away.index, "below cold", above=(away.index, root))
        pages.archive(away.index, cold=True)
        self._change(hidden, state="hidden")
        self._change(away, state="cold")
        if place.holds_pins:
            self._pins(place, root)
            self._moved(place, root)

    def _pins(self, place: Place, root: str) -> None:
        pages = self.ctx.pages
        pinned = pages.create_detail_page("pinned", "", "pinned text", root, pinned=True)
        self._note(Leaf(pinned, "leaf", place, root, pinned=True, above=(root,)))
        above = pages.create_contents_page("above", "", root, pinned=False)
        below = pages.create_detail_page("pinned below", "", "text", above, pinned=True)
        self._note(Leaf(above, "folder", place, root, folder=True, above_pinned=True, above=(root,)))
        self._note(Leaf(below, "leaf", place, above, pinned=True, above=(above, root)))
        firm = pages.create_contents_page("pinned folder", "", root, pinned=True)
        loose = pages.create_detail_page("in a pinned folder", "", "text", firm, pinned=False)
        self._note(Leaf(firm, "folder", place, root, folder=True, pinned=True, above=(root,)))
        self._note(Leaf(loose, "leaf", place, firm, above=(firm, root)))

    def _moved(self, place: Place, root: str) -> None:
        """Create an exchange that the developer moved out of the conversation."""
        self.ctx.user(f"moved to {place.id}")
        old = self.ctx.pages.children("usr-0")[-1].index
        index = self.ctx.pages.move_page(old, root)[old]
        self.ctx.pages.unpin(index)
        self._note(Leaf(index, "exchange", place, root, messages=True, users=True, above=(root,)))

    def _converse(self) -> None:
        ctx, place = self.ctx, self.talk
        for number in range(6):
            ctx.user(f"question {number}")  # usr-1, usr-3, …
            ctx.assistant(f"answer {number}")
        ctx.pages.hide("usr-3")
        ctx.pages.archive("usr-4")
        ctx.pages.archive("usr-5", cold=True)
        if not self._quiet:
            ctx.pages.pin("usr-6")
        ctx.conversation.delete(6)  # usr-7
        ctx.conversation.compress([7, 8])  # usr-8 and usr-9 behind usr-13
        chapter = ctx.pages.create_contents_page("chapter", "", "usr-0", ["usr-1"])
        closed = ctx.pages.create_contents_page("closed chapter", "", "usr-0", ["usr-10"])
        ctx.pages.hide(closed)
        high = ctx.pages.create_contents_page("pinned chapter", "", "usr-0", ["usr-11"])
        if not self._quiet:
            ctx.pages.pin("usr-11")
        text = ctx.pages.create_detail_page("text", "", "a note", "usr-0")
        empty = ctx.pages.create_contents_page("empty", "", "usr-0")
        root, pinned = ("usr-0",), not self._quiet
        for leaf in (
            Leaf(
                "usr-0",
                "root",
                place,
                None,
                folder=True,
                above_pinned=pinned,
                messages=True,
                waiting=pinned,
                users=True,
            ),
            Leaf(chapter, "chapter", place, "usr-0", folder=True, messages=True, above=root, users=True),
            Leaf("usr-1", "exchange", place, chapter, messages=True, above=(chapter, "usr-0"), users=True),
            Leaf("usr-2", "exchange", place, "usr-0", messages=True, above=root),
            Leaf("usr-3", "exchange", place, "usr-0", messages=True, state="hidden", above=root, users=True),
            Leaf("usr-4", "exchange", place, "usr-0", messages=True, state="hot", above=root),
            Leaf("usr-5", "exchange", place, "usr-0", messages=True, state="cold", above=root, users=True),
            Leaf("usr-6", "exchange", place, "usr-0", messages=True, pinned=pinned, above=root),
            Leaf("usr-7", "exchange", place, "usr-0", messages=True, marked=True, state="cold", above=root, users=True),
            Leaf("usr-8", "exchange", place, "usr-0", messages=True, compressed=True, state="cold", above=root),
            Leaf("usr-13", "summary", place, "usr-0", above=root, users=True),
            Leaf(closed, "chapter", place, "usr-0", folder=True, messages=True, state="hidden", above=root),
            Leaf("usr-10", "exchange", place, closed, messages=True, state="below hidden", above=(closed, "usr-0")),
            Leaf(
                high, "chapter", place, "usr-0", folder=True, messages=True, above_pinned=pinned, above=root, users=True
            ),
            Leaf("usr-11", "exchange", place, high, messages=True, pinned=pinned, above=(high, "usr-0"), users=True),
            Leaf(text, "leaf", place, "usr-0", above=root),
            Leaf(empty, "folder", place, "usr-0", folder=True, above=root),
        ):
            self._note(leaf)

    def _wait(self) -> None:
        """Let the newest exchange wait for a result. Call this last, because the next message would close it."""
        self.ctx.assistant(None, [ToolCall("open", "look", "{}")])
        index = self.ctx.pages.children("usr-0")[-1].index
        self._note(Leaf(index, "open exchange", self.talk, "usr-0", messages=True, waiting=True, above=("usr-0",)))

    def _folder(self, place: Place, root: str, state: State, kind: str = "folder") -> Leaf:
        index = self.ctx.pages.create_contents_page(kind, "", root, pinned=False)
        return self._put(Leaf(index, kind, place, root, folder=True, state=state, above=(root,)))

    def _leaf(self, place: Place, parent: str, state: State, above: tuple[str, ...] | None = None) -> Leaf:
        index = self.ctx.pages.create_detail_page("leaf", "about", "some text", parent, pinned=False)
        return self._put(Leaf(index, "leaf", place, parent, state=state, above=above or (parent,)))

    def _put(self, leaf: Leaf) -> Leaf:
        pages = self.ctx.pages
        if leaf.state == "hidden":
            pages.hide(leaf.index)
        elif leaf.state in ("hot", "cold"):
            pages.archive(leaf.index, cold=leaf.state == "cold")
        return self._note(leaf)

    def _note(self, leaf: Leaf) -> Leaf:
        self.pages.append(leaf)
        return leaf

    def _change(self, leaf: Leaf, state: State) -> None:
        place = self.pages.index(leaf)
        self.pages[place] = Leaf(**{**leaf.__dict__, "state": state})


def _places() -> Iterator[Place]:
    """Create a segment of every type under every permission, with pins and without."""
    for kind in TYPES:
        for permission in PERMISSIONS:
            short = f"{kind.lower()}-{permission.lower().replace('_', '-')}"
            yield Place(short, kind, permission)  # type: ignore[arg-type]
    for kind in TYPES:
        yield Place(f"{kind.lower()}-bare", kind, "SYSTEM_MANAGED", holds_pins=False)  # type: ignore[arg-type]
