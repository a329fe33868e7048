"""The tree of a context for a terminal: one line for each page, with its tokens and its state."""

from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import chain, pairwise
from typing import Any

from quire.cli.terminal import DEFAULT_WIDTH, Paint, count_of, cut, escape_control, width
from quire.model.pages import ContentsPage, DetailPage, Lifecycle, Mark, Page, PageIndex, Segment, state_word
from quire.system import ContextSystem
from quire.system.rules import check_whole_number

MAX_DEPTH = 40
"""The default number of levels."""
MAX_CHILDREN = 50
MAX_PAGES = 1_000
"""About as many pages are shown of a large context, upper levels first."""
_CHUNK = 256
_MIN_NAME = 12
_MAX_NAME = 60


def draw_tree(
    pages: ContextSystem, paint: Paint, columns: int = DEFAULT_WIDTH, *, index: PageIndex | None = None, **bounds: Any
) -> Iterator[str]:
    """Yield the lines of a context, segment by segment, or of one page and the pages below it.

    The bounds are those of `_Tree`.
    """
    tree = _Tree(pages, index, **bounds)
    draw = partial(_page_line, paint, columns)
    if index is not None:
        heads = {index: draw("", pages.get_page(index))}
    else:
        heads = {segment.root_index: _segment_line(segment, paint) for segment in pages.list_segments()}
    for root, head in heads.items():
        yield head
        for _, start, page in tree.walk(root):
            yield f"{start}{paint.dim(f'… {page:,} more')}" if isinstance(page, int) else draw(start, page)
    for title, marked in (("cold archive", False), ("removed from the conversation", True)):
        listed = [page for page in tree.outside if _is_marked(page) is marked]
        if listed:
            yield paint.bold(title)
            for page in listed[: tree.limit]:
                yield draw("   ", page, f" (from {page.home})")


def tree_pages(pages: ContextSystem, *, index: PageIndex | None = None, **bounds: Any) -> Iterator[tuple[int, Page]]:
    """Yield the pages that `draw_tree` shows, each with its depth; pages outside the tree are last."""
    tree = _Tree(pages, index, **bounds)
    for root in tree.roots:
        yield 0, pages.get_page(root)
        yield from ((depth, page) for depth, _, page in tree.walk(root) if not isinstance(page, int))
    yield from ((0, page) for page in tree.outside[: tree.limit])


class _Tree:
    """The part of a context that is shown: all segments, or a page and the pages below it.

    `depth` limits the levels, `closed` the levels below a closed folder, and `limit` the children of each folder. The
    folders to open are chosen first, level by level. With `everything`, each folder is read when the walk reaches it,
    and there are no limits.
    """

    def __init__(
        self,
        pages: ContextSystem,
        index: PageIndex | None,
        *,
        depth: int = MAX_DEPTH,
        closed: int = MAX_DEPTH,
        limit: int = MAX_CHILDREN,
        everything: bool = False,
    ) -> None:
        self._depth = check_whole_number(depth, "depth")
        self._closed = closed
        check_whole_number(limit, "limit")
        self.limit = None if everything else limit
        self._pages = pages
        self._children: dict[PageIndex, list[Page]] = {}
        self.outside: list[Page] = []
        """Cold-archived and marked pages of the folders that were read."""
        self.roots = [segment.root_index for segment in pages.list_segments()] if index is None else [index]
        if not everything:
            self._read()

    def walk(self, root: PageIndex) -> Iterator[tuple[int, str, Page | int]]:
        """Yield the pages below a folder, parents first, each with its depth and the start of its line.

        A number instead of a page counts the further pages of a folder.
        """
        stack = [("", self._entries(root))]
        while stack:
            indent, entries = stack[-1]
            page, following = next(entries, (None, None))
            if page is None:
                stack.pop()
                continue
            yield len(stack), f"{indent}{'├─ ' if following else '└─ '}", page
            if isinstance(page, ContentsPage):
                stack.append((indent + ("│  " if following else "   "), self._entries(page.index)))

    def _entries(self, folder: PageIndex) -> Iterator[tuple[Page | int | None, Page | int | None]]:
        """Yield the children of a folder, then the number of further children, each with the one that follows it."""
        if self.limit is None:
            return pairwise(chain(self._all_children(folder), (None,)))
        known = self._children.get(folder, [])
        more = self._pages.child_count(folder) - len(known) if folder in self._children else 0
        return pairwise([*known, *([more] if more else []), None])

    def _all_children(self, folder: PageIndex) -> Iterator[Page]:
        if not isinstance(self._pages.get_page(folder), ContentsPage):
            return
        self.outside += self._pages.children(folder, cold=True)
        after: PageIndex | None = None
        while chunk := self._pages.children(folder, after=after, limit=_CHUNK):
            yield from chunk
            after = chunk[-1].index

    def _read(self) -> None:
        """Read folders level by level until there are enough pages to show."""
        count = 0
        queue = deque((page, 1, self._closed) for page in map(self._pages.get_page, self.roots))
        while queue and count < MAX_PAGES:
            folder, level, closed = queue.popleft()
            if level > self._depth or not isinstance(folder, ContentsPage) or closed < 0:
                continue
            children = self._children[folder.index] = self._pages.children(folder.index, limit=self.limit)
            self.outside += self._pages.children(folder.index, limit=self.limit, cold=True)
            count += len(children)
            queue.extend((child, level + 1, closed - 1 if state_word(child) else closed) for child in children)


def _page_line(paint: Paint, columns: int, start: str, page: Page, end: str = "") -> str:
    """Return the line of one page: index, name, size, state. The name is cut on a narrow terminal."""
    size, marks = _size(page), _marks(page)
    state = f" [{', '.join(word for word, _ in marks)}]" if marks else ""
    used = width(f"{start}{page.index}  {size}{state}{end}")
    name = cut(escape_control(page.name), max(_MIN_NAME, min(_MAX_NAME, columns - used)))
    name = paint.bold(name) if isinstance(page, ContentsPage) else name
    coloured = ", ".join(paint.colour(colour, word) for word, colour in marks)
    state = f" [{coloured}]" if marks else ""
    return f"{start}{paint.cyan(page.index)} {name} {paint.yellow(size)}{state}{paint.dim(end)}"


def _is_marked(page: Page) -> bool:
    return isinstance(page, DetailPage) and page.mark is not Mark.NONE


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
    word = state_word(page)
    if word == "folded" and page.effective is Lifecycle.ACTIVE:
        marks.append((f"{word}, summary {count_of(page.summary_tokens, 'token')}", "blue"))
    elif page.effective is Lifecycle.HOT_ARCHIVED:
        marks.append((word, "blue" if word == "archived" else "dim"))
    elif not word and not page.pinned:
        marks.append(("open", "dim"))
    return marks
