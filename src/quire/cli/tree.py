"""Drawing a context's tree for a terminal: one line a page, with its tokens and state, within the terminal's width."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire.cli.paint import Paint
from quire.cli.visible import visible
from quire.cli.width import DEFAULT_WIDTH, cut, width
from quire.cli.words import counted
from quire.model.pages import ContentsPage, DetailPage, Lifecycle, Mark, Page, PageIndex, Segment, Visibility
from quire.system import ContextSystem
from quire.system.rules import check_whole_number
from quire.view.renderer import ACTOR

DEPTH = 40
"""As deep as a tree is drawn where nobody says how deep."""
MOST_CHILDREN = 50
MOST_PAGES = 1_000
"""So many pages are shown of a large context, about: the upper levels of it first."""
_CHUNK = 256
_LEAST_NAME = 12
_LONGEST_NAME = 60


def draw_tree(
    pages: ContextSystem,
    paint: Paint,
    columns: int = DEFAULT_WIDTH,
    *,
    index: PageIndex | None = None,
    depth: int = DEPTH,
    closed: int = DEPTH,
    most: int = MOST_CHILDREN,
    everything: bool = False,
) -> Iterator[str]:
    """The lines of the whole context, segment by segment, or of one page and what is below it.

    So many levels are shown, so many below a closed folder, and so many children of each folder, with a count of the
    others; and no more folders are opened than are good to look at, unless `everything` is asked for.
    """
    tree = _Tree(pages, _Bounds(depth, closed, most, everything), index)
    draw = _Drawing(paint, columns)
    if index is not None:
        yield draw.page("", pages.get_page(index))
        yield from map(draw.line, tree.walk(index))
    else:
        for segment in pages.list_segments():
            yield _segment_line(segment, paint)
            yield from map(draw.line, tree.walk(segment.root_index))
    for title, marked in (("cold archive", False), ("out of the conversation", True)):
        found = [page for page in tree.out if _is_marked(page) is marked]
        if found:
            yield paint.bold(title)
            for page in found if everything else found[:most]:
                yield draw.page("   ", page, f" (from {page.home})")


def pages_of(
    pages: ContextSystem,
    *,
    index: PageIndex | None = None,
    depth: int = DEPTH,
    most: int = MOST_CHILDREN,
    everything: bool = False,
) -> Iterator[tuple[int, Page]]:
    """The pages that `draw_tree` shows, each with its depth; those that are out of the tree last."""
    tree = _Tree(pages, _Bounds(depth, DEPTH, most, everything), index)
    for root in [index] if index is not None else [segment.root_index for segment in pages.list_segments()]:
        yield 0, pages.get_page(root)
        yield from ((line.depth, line.page) for line in tree.walk(root) if line.page is not None)
    yield from ((0, page) for page in (tree.out if everything else tree.out[:most]))


class _Bounds(NamedTuple):
    """How much of a tree is looked at."""

    depth: int
    closed: int
    most: int
    everything: bool


class _Line(NamedTuple):
    """A page in the tree, or how many more there are in a folder."""

    depth: int
    start: str
    page: Page | None
    more: int = 0


class _Tree:
    """What is shown of a context: for each folder that is looked into, its first children and how many more.

    Which folders those are is found out first, level by level; where everything is shown, folders are read when their
    turn comes.
    """

    def __init__(self, pages: ContextSystem, bounds: _Bounds, index: PageIndex | None) -> None:
        self._bounds = bounds._replace(
            depth=check_whole_number(bounds.depth, "depth"), most=check_whole_number(bounds.most, "limit")
        )
        self._pages = pages
        self._found: dict[PageIndex, list[Page]] = {}
        self.out: list[Page] = []
        """Pages that were archived cold, or marked, out of the folders that were looked into."""
        if not bounds.everything:
            self._look([segment.root_index for segment in pages.list_segments()] if index is None else [index])

    def walk(self, root: PageIndex) -> Iterator[_Line]:
        """The lines below a folder, parents first."""
        stack = [("", self._lines(root))]
        while stack:
            indent, lines = stack[-1]
            found = next(lines, None)
            if found is None:
                stack.pop()
                continue
            page, more, last = found
            yield _Line(len(stack), f"{indent}{'└─ ' if last else '├─ '}", page, more)
            if isinstance(page, ContentsPage):
                stack.append((indent + ("   " if last else "│  "), self._lines(page.index)))

    def _lines(self, folder: PageIndex) -> Iterator[tuple[Page | None, int, bool]]:
        """The children of a folder, then how many more there are, each with whether it is the last."""
        children = self._all_children(folder) if self._bounds.everything else iter(self._found.get(folder, ()))
        more = self._pages.child_count(folder) - len(self._found[folder]) if folder in self._found else 0
        child = next(children, None)
        while child is not None:
            following = next(children, None)
            yield child, 0, following is None and not more
            child = following
        if more:
            yield None, more, True

    def _all_children(self, folder: PageIndex) -> Iterator[Page]:
        if not isinstance(self._pages.get_page(folder), ContentsPage):
            return
        self.out += self._pages.children(folder, cold=True)
        after: PageIndex | None = None
        while chunk := self._pages.children(folder, after=after, limit=_CHUNK):
            yield from chunk
            after = chunk[-1].index

    def _look(self, roots: Sequence[PageIndex]) -> None:
        """Look into folders level by level until there is enough to show."""
        bounds, shown = self._bounds, 0
        waiting = deque((page, 1, bounds.closed) for page in map(self._pages.get_page, roots))
        while waiting and shown < MOST_PAGES:
            folder, level, closed = waiting.popleft()
            if level > bounds.depth or not isinstance(folder, ContentsPage) or closed < 0:
                continue
            children = self._found[folder.index] = self._pages.children(folder.index, limit=bounds.most)
            self.out += self._pages.children(folder.index, limit=bounds.most, cold=True)
            shown += len(children)
            waiting.extend((child, level + 1, closed if _is_open(child) else closed - 1) for child in children)


class _Drawing:
    """Draws lines in colour, within the width of a terminal."""

    def __init__(self, paint: Paint, columns: int) -> None:
        self._paint = paint
        self._columns = columns

    def line(self, line: _Line) -> str:
        """A line of the tree."""
        if line.page is None:
            return f"{line.start}{self._paint.dim(f'… {line.more:,} more')}"
        return self.page(line.start, line.page)

    def page(self, start: str, page: Page, end: str = "") -> str:
        """One page: index, name, size, state. The name gives way where the terminal is narrow."""
        paint, size, marks = self._paint, _size(page), _marks(page)
        state = f" [{', '.join(word for word, _ in marks)}]" if marks else ""
        taken = width(f"{start}{page.index}  {size}{state}{end}")
        name = cut(visible(page.name), max(_LEAST_NAME, min(_LONGEST_NAME, self._columns - taken)))
        shown = paint.bold(name) if isinstance(page, ContentsPage) else name
        coloured = ", ".join(paint.colour(colour, word) for word, colour in marks)
        state = f" [{coloured}]" if marks else ""
        return f"{start}{paint.cyan(page.index)} {shown} {paint.yellow(size)}{state}{paint.dim(end)}"


def _is_marked(page: Page) -> bool:
    return isinstance(page, DetailPage) and page.mark is not Mark.NONE


def _is_open(page: Page) -> bool:
    return page.effective is Lifecycle.ACTIVE and page.visibility is Visibility.EXPANDED


def _segment_line(segment: Segment, paint: Paint) -> str:
    kind = paint.dim(f"{segment.type.name} · {segment.permission.name}")
    return f"{paint.bold(segment.id)} {visible(segment.name)} {kind}"


def _size(page: Page) -> str:
    if isinstance(page, DetailPage):
        return counted(page.tokens, "token")
    children = counted(page.child_count, "page")
    return f"{children}, {counted(page.tokens, 'token')}" if page.tokens else children


def _marks(page: Page) -> list[tuple[str, str]]:
    """The words that say how a page stands, each with its colour."""
    marks = []
    if page.pinned:
        marks.append(("pinned", "green"))
    if isinstance(page, DetailPage) and page.mark is not Mark.NONE:
        marks.append((page.mark.name.lower(), "red"))
    if page.lifecycle is Lifecycle.HOT_ARCHIVED:
        marks.append(("archived", "blue"))
    elif page.effective is Lifecycle.HOT_ARCHIVED:
        marks.append(("folded away", "dim"))
    elif page.visibility is Visibility.HIDDEN:
        marks.append((f"{_closed_word(page)}, summary {counted(page.summary_tokens, 'token')}", "blue"))
    elif page.effective is Lifecycle.ACTIVE and not page.pinned:
        marks.append(("open", "dim"))
    return marks


def _closed_word(page: Page) -> str:
    if isinstance(page, DetailPage):
        return "line"
    return "folded" if page.author == ACTOR else "hidden"
