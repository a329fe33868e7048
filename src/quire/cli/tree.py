"""Drawing a context's tree for a terminal: one line a page, with its tokens and state, within the terminal's width."""

from collections.abc import Iterator

from quire.cli.paint import Paint
from quire.cli.width import DEFAULT_WIDTH, cut, width
from quire.pages import ContentsPage, DetailPage, Lifecycle, Mark, Page, Segment, Visibility
from quire.rendering.renderer import ACTOR
from quire.system import ContextSystem

_MAX_CHILDREN = 50
_MAX_DEPTH = 40
_LEAST_NAME = 12
_LONGEST_NAME = 60


def draw_tree(
    pages: ContextSystem,
    paint: Paint,
    columns: int = DEFAULT_WIDTH,
    *,
    closed: int = _MAX_DEPTH,
    most: int = _MAX_CHILDREN,
) -> Iterator[str]:
    """The lines of the whole context, segment by segment.

    So many levels below a closed folder are shown, and so many children of each folder, with a count of the others.
    """
    draw = _Tree(pages, paint, columns, most)
    for segment in pages.list_segments():
        yield _segment_line(segment, paint)
        yield from draw.children(segment.root_index, "", closed)
    out = [page for page in pages.list_pages() if page.lifecycle is Lifecycle.COLD_ARCHIVED]
    for title, marked in (("cold archive", False), ("out of the conversation", True)):
        found = [page for page in out if _is_marked(page) is marked]
        if found:
            yield paint.bold(title)
            for page in found[:most]:
                yield draw.page("   ", page, f" (from {page.home})")


class _Tree:
    def __init__(self, pages: ContextSystem, paint: Paint, columns: int, most: int) -> None:
        self._pages = pages
        self._paint = paint
        self._columns = columns
        self._most = most

    def children(self, index: str, indent: str, closed: int) -> Iterator[str]:
        """The lines below a folder, so many levels of closed ones among them."""
        children = self._pages.children(index, limit=self._most)
        more = self._pages.child_count(index) - len(children)
        for position, child in enumerate(children):
            last = position == len(children) - 1 and not more
            yield self.page(f"{indent}{'└─ ' if last else '├─ '}", child)
            below = closed if _is_open(child) else closed - 1
            if not isinstance(child, ContentsPage) or below < 0:
                continue
            if len(indent) >= 3 * _MAX_DEPTH:
                yield f"{indent}   {self._paint.dim('… deeper')}"
            else:
                yield from self.children(child.index, indent + ("   " if last else "│  "), below)
        if more:
            yield f"{indent}└─ {self._paint.dim(f'… {more:,} more')}"

    def page(self, start: str, page: Page, end: str = "") -> str:
        """One page: index, name, size, state. The name gives way where the terminal is narrow."""
        paint, size, marks = self._paint, _size(page), _marks(page)
        state = f" [{', '.join(word for word, _ in marks)}]" if marks else ""
        taken = width(f"{start}{page.index}  {size}{state}{end}")
        name = cut(page.name, max(_LEAST_NAME, min(_LONGEST_NAME, self._columns - taken)))
        shown = paint.bold(name) if isinstance(page, ContentsPage) else name
        coloured = ", ".join(paint.colour(colour, word) for word, colour in marks)
        state = f" [{coloured}]" if marks else ""
        return f"{start}{paint.cyan(page.index)} {shown} {paint.yellow(size)}{state}{paint.dim(end)}"


def _is_marked(page: Page) -> bool:
    return isinstance(page, DetailPage) and page.mark is not Mark.NONE


def _is_open(page: Page) -> bool:
    return page.effective is Lifecycle.ACTIVE and page.visibility is Visibility.EXPANDED


def _segment_line(segment: Segment, paint: Paint) -> str:
    return f"{paint.bold(segment.id)} {segment.name} {paint.dim(f'{segment.type.name} · {segment.permission.name}')}"


def _size(page: Page) -> str:
    if isinstance(page, DetailPage):
        return _count(page.tokens, "token")
    children = _count(page.child_count, "page")
    return f"{children}, {_count(page.tokens, 'token')}" if page.tokens else children


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
        marks.append((f"{_closed_word(page)}, summary {_count(page.summary_tokens, 'token')}", "blue"))
    elif page.effective is Lifecycle.ACTIVE and not page.pinned:
        marks.append(("open", "dim"))
    return marks


def _closed_word(page: Page) -> str:
    if isinstance(page, DetailPage):
        return "line"
    return "folded" if page.author == ACTOR else "hidden"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
