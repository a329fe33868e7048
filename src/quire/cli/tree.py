"""The tree of a context for a terminal: one line for each page, with its tokens and its state."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire.cli.terminal import DEFAULT_WIDTH, Paint, count_of, cut, escape_control, width
from quire.model.pages import ContentsPage, DetailPage, Lifecycle, Mark, Page, PageIndex, Segment, Visibility
from quire.system import ContextSystem
from quire.system.rules import check_whole_number
from quire.view.renderer import ACTOR

MAX_DEPTH = 40
"""The default number of levels."""
MAX_CHILDREN = 50
MAX_PAGES = 1_000
"""About as many pages are shown of a large context, upper levels first."""
_CHUNK = 256
_MIN_NAME = 12
_MAX_NAME = 60


def draw_tree(
    pages: ContextSystem,
    paint: Paint,
    columns: int = DEFAULT_WIDTH,
    *,
    index: PageIndex | None = None,
    depth: int = MAX_DEPTH,
    closed: int = MAX_DEPTH,
    limit: int = MAX_CHILDREN,
    everything: bool = False,
) -> Iterator[str]:
    """Yield the lines of a context, segment by segment, or of one page and the pages below it.

    `depth` limits the levels, `closed` the levels below a closed folder, and `limit` the children of each folder; a
    line counts the others. With `everything`, no folder is left out because of the size of the context.
    """
    tree = _Tree(pages, _Bounds(depth, closed, limit, everything), index)
    drawing = _Drawing(paint, columns)
    if index is not None:
        yield drawing.page("", pages.get_page(index))
        yield from map(drawing.line, tree.walk(index))
    else:
        for segment in pages.list_segments():
            yield _segment_line(segment, paint)
            yield from map(drawing.line, tree.walk(segment.root_index))
    for title, marked in (("cold archive", False), ("removed from the conversation", True)):
        listed = [page for page in tree.outside if _is_marked(page) is marked]
        if listed:
            yield paint.bold(title)
            for page in listed if everything else listed[:limit]:
                yield drawing.page("   ", page, f" (from {page.home})")


def tree_pages(
    pages: ContextSystem,
    *,
    index: PageIndex | None = None,
    depth: int = MAX_DEPTH,
    limit: int = MAX_CHILDREN,
    everything: bool = False,
) -> Iterator[tuple[int, Page]]:
    """Yield the pages that `draw_tree` shows, each with its depth; pages outside the tree are last."""
    tree = _Tree(pages, _Bounds(depth, MAX_DEPTH, limit, everything), index)
    for root in [index] if index is not None else [segment.root_index for segment in pages.list_segments()]:
        yield 0, pages.get_page(root)
        yield from ((line.depth, line.page) for line in tree.walk(root) if line.page is not None)
    yield from ((0, page) for page in (tree.outside if everything else tree.outside[:limit]))


class _Bounds(NamedTuple):
    depth: int
    closed: int
    limit: int
    everything: bool


class _Line(NamedTuple):
    """A page in the tree, or (without a page) the number of further pages of a folder."""

    depth: int
    start: str
    page: Page | None
    more: int = 0


class _Tree:
    """The part of a context that is shown.

    The folders to open are chosen first, level by level. If everything is shown, each folder is read when the walk
    reaches it.
    """

    def __init__(self, pages: ContextSystem, bounds: _Bounds, index: PageIndex | None) -> None:
        self._bounds = bounds._replace(
            depth=check_whole_number(bounds.depth, "depth"), limit=check_whole_number(bounds.limit, "limit")
        )
        self._pages = pages
        self._children: dict[PageIndex, list[Page]] = {}
        self.outside: list[Page] = []
        """Cold-archived and marked pages of the folders that were read."""
        if not bounds.everything:
            self._read([segment.root_index for segment in pages.list_segments()] if index is None else [index])

    def walk(self, root: PageIndex) -> Iterator[_Line]:
        """Yield the lines below a folder, parents first."""
        stack = [("", self._lines(root))]
        while stack:
            indent, lines = stack[-1]
            line = next(lines, None)
            if line is None:
                stack.pop()
                continue
            page, more, is_last = line
            yield _Line(len(stack), f"{indent}{'└─ ' if is_last else '├─ '}", page, more)
            if isinstance(page, ContentsPage):
                stack.append((indent + ("   " if is_last else "│  "), self._lines(page.index)))

    def _lines(self, folder: PageIndex) -> Iterator[tuple[Page | None, int, bool]]:
        """Yield the children of a folder, then the number of further children, each with whether it is the last."""
        known = self._children.get(folder, [])
        children = self._all_children(folder) if self._bounds.everything else iter(known)
        more = self._pages.child_count(folder) - len(known) if folder in self._children else 0
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
        self.outside += self._pages.children(folder, cold=True)
        after: PageIndex | None = None
        while chunk := self._pages.children(folder, after=after, limit=_CHUNK):
            yield from chunk
            after = chunk[-1].index

    def _read(self, roots: Sequence[PageIndex]) -> None:
        """Read folders level by level until there are enough pages to show."""
        bounds, count = self._bounds, 0
        queue = deque((page, 1, bounds.closed) for page in map(self._pages.get_page, roots))
        while queue and count < MAX_PAGES:
            folder, level, closed = queue.popleft()
            if level > bounds.depth or not isinstance(folder, ContentsPage) or closed < 0:
                continue
            children = self._children[folder.index] = self._pages.children(folder.index, limit=bounds.limit)
            self.outside += self._pages.children(folder.index, limit=bounds.limit, cold=True)
            count += len(children)
            queue.extend((child, level + 1, closed if _is_open(child) else closed - 1) for child in children)


class _Drawing:
    """Draws lines within the width of a terminal."""

    def __init__(self, paint: Paint, columns: int) -> None:
        self._paint = paint
        self._columns = columns

    def line(self, line: _Line) -> str:
        """Return a line of the tree."""
        if line.page is None:
            return f"{line.start}{self._paint.dim(f'… {line.more:,} more')}"
        return self.page(line.start, line.page)

    def page(self, start: str, page: Page, end: str = "") -> str:
        """Return the line of one page: index, name, size, state. The name is cut on a narrow terminal."""
        paint, size, marks = self._paint, _size(page), _marks(page)
        state = f" [{', '.join(word for word, _ in marks)}]" if marks else ""
        used = width(f"{start}{page.index}  {size}{state}{end}")
        name = cut(escape_control(page.name), max(_MIN_NAME, min(_MAX_NAME, self._columns - used)))
        name = paint.bold(name) if isinstance(page, ContentsPage) else name
        coloured = ", ".join(paint.colour(colour, word) for word, colour in marks)
        state = f" [{coloured}]" if marks else ""
        return f"{start}{paint.cyan(page.index)} {name} {paint.yellow(size)}{state}{paint.dim(end)}"


def _is_marked(page: Page) -> bool:
    return isinstance(page, DetailPage) and page.mark is not Mark.NONE


def _is_open(page: Page) -> bool:
    return page.effective is Lifecycle.ACTIVE and page.visibility is Visibility.EXPANDED


def _segment_line(segment: Segment, paint: Paint) -> str:
    kind = paint.dim(f"{segment.type.name} · {segment.permission.name}")
    return f"{paint.bold(segment.id)} {escape_control(segment.name)} {kind}"


def _size(page: Page) -> str:
    if isinstance(page, DetailPage):
        return count_of(page.tokens, "token")
    children = count_of(page.child_count, "page")
    return f"{children}, {count_of(page.tokens, 'token')}" if page.tokens else children


def _marks(page: Page) -> list[tuple[str, str]]:
    """Return the words for the state of a page, each with its colour."""
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
        leaf, folded = isinstance(page, DetailPage), page.author == ACTOR
        word = "line" if leaf else "folded" if folded else "hidden"
        marks.append((f"{word}, summary {count_of(page.summary_tokens, 'token')}", "blue"))
    elif page.effective is Lifecycle.ACTIVE and not page.pinned:
        marks.append(("open", "dim"))
    return marks
