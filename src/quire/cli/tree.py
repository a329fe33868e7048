"""Drawing a context's tree for a terminal: one line a page, with its tokens and state."""

from collections.abc import Iterator

from quire.cli.paint import Paint
from quire.pages import ContentsPage, DetailPage, Lifecycle, Mark, Page, Segment, Visibility
from quire.system import ContextSystem

_MAX_CHILDREN = 50
_MAX_DEPTH = 40
_WIDTH = 60


def draw_tree(pages: ContextSystem, paint: Paint) -> Iterator[str]:
    """The lines of the whole context, segment by segment; long folders are cut with a count."""
    for segment in pages.list_segments():
        yield _segment_line(segment, paint)
        yield from _children(pages, segment.root_index, "", paint)
    out = [page for page in pages.list_pages() if page.lifecycle is Lifecycle.COLD_ARCHIVED]
    for title, marked in (("cold archive", False), ("out of the conversation", True)):
        found = [page for page in out if _is_marked(page) is marked]
        if found:
            yield paint.bold(title)
            for page in found[:_MAX_CHILDREN]:
                yield f"   {_page(page, paint)}{paint.dim(f' (from {page.home})')}"


def _is_marked(page: Page) -> bool:
    return isinstance(page, DetailPage) and page.mark is not Mark.NONE


def _segment_line(segment: Segment, paint: Paint) -> str:
    return f"{paint.bold(segment.id)} {segment.name} {paint.dim(f'{segment.type.name} · {segment.permission.name}')}"


def _children(pages: ContextSystem, index: str, indent: str, paint: Paint) -> Iterator[str]:
    children = pages.children(index, limit=_MAX_CHILDREN)
    more = pages.child_count(index) - len(children)
    for position, child in enumerate(children):
        last = position == len(children) - 1 and not more
        yield f"{indent}{'└─ ' if last else '├─ '}{_page(child, paint)}"
        if isinstance(child, ContentsPage) and len(indent) >= 3 * _MAX_DEPTH:
            yield f"{indent}   {paint.dim('… deeper')}"
        elif isinstance(child, ContentsPage):
            yield from _children(pages, child.index, indent + ("   " if last else "│  "), paint)
    if more:
        yield f"{indent}└─ {paint.dim(f'… {more:,} more')}"


def _page(page: Page, paint: Paint) -> str:
    name = page.name if len(page.name) <= _WIDTH else page.name[: _WIDTH - 1] + "…"
    folder = isinstance(page, ContentsPage)
    size = _count(page.child_count, "page") if isinstance(page, ContentsPage) else _count(page.tokens, "token")
    shown = paint.bold(name) if folder else name
    return f"{paint.cyan(page.index)} {shown} {paint.yellow(size)}{_state(page, paint)}"


def _state(page: Page, paint: Paint) -> str:
    marks = []
    if page.pinned:
        marks.append(paint.green("pinned"))
    if isinstance(page, DetailPage) and page.mark is not Mark.NONE:
        marks.append(paint.red(page.mark.name.lower()))
    if page.lifecycle is Lifecycle.HOT_ARCHIVED:
        marks.append(paint.blue("archived"))
    elif page.effective is Lifecycle.HOT_ARCHIVED:
        marks.append(paint.dim("folded away"))
    elif page.visibility is Visibility.HIDDEN:
        marks.append(paint.blue(f"hidden, shows {_count(page.summary_tokens, 'token')}"))
    return f" [{', '.join(marks)}]" if marks else ""


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
