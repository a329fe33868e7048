"""The functions behind a model's tools: each calls one operation of the agent and returns a short text."""

from typing import Any

from msgspec.structs import replace

from quire.agent.agent import READ_LENGTH, AgentContext
from quire.agent.listing import count_pages, format_entry, format_hits, format_lines, format_originals, quote_range
from quire.errors import InvalidOperation, InvalidValue, QuireError, short_repr
from quire.model.pages import ContentsPage, Lifecycle, PageIndex, Permission, SegmentType
from quire.model.text import MAX_DESCRIPTION, clean_line, collapse_whitespace
from quire.search.query import Query, parse_query
from quire.search.self_search_filter import NOTHING_FOUND
from quire.search.tokenizer import is_unspaced
from quire.view.sheets import read_span
from quire.windows.app import LAUNCHER
from quire.windows.windows import Windows

_LIST_LENGTH = 40
_HITS = 5
_MAX_HITS = 50
_QUOTED = 200
_MAX_LENGTH = 20_000
"""The most characters that one call reads; the answer says how to continue."""
_FOOTER_TOKENS = 32


class ToolContext:
    """The objects that the tools of one agent use: the agent, and the windows of its context, if it has any.

    With `beside` the model's own conversation is not stored in this context, so its calls are not part of it.
    """

    def __init__(self, agent: AgentContext, windows: Windows | None = None, *, beside: bool = False) -> None:
        self.agent = agent if beside else agent._without_quoted_writes()
        self.windows = None if windows is None else windows.acting_as(agent.actor, quota=agent.quota)
        self._beside = beside

    def has_windows(self) -> bool:
        """Return whether an app is registered and the agent can see the segment of the windows."""
        if self.windows is None or not self.windows._has_apps():
            return False
        try:
            self.agent.check_permission(self.windows.place(), "get_page")
        except QuireError:
            return False
        return True

    def current_turn_pages(self) -> set[PageIndex]:
        """Return the pages that the model answers just now and need not search for."""
        return set() if self._beside else self.agent._current_turn_pages()


def find(context: ToolContext, query: str, limit: int | None = None) -> str:
    """Search; return one line for every hit."""
    parsed = parse_query(query)
    if not parsed.clauses:
        raise InvalidValue(f"is {short_repr(query)}; it holds no word to look for.", argument="query")
    current, most = context.current_turn_pages(), min(limit or _HITS, _MAX_HITS)
    hits = [hit for hit in context.agent.find(query, most + len(current)) if hit.index not in current][:most]
    if not hits:
        return f"{NOTHING_FOUND}{query[:_QUOTED]!r}. Try fewer or other words{_prefix_hint(parsed)}."
    room = context.agent._answer_room()
    return format_hits(hits, room, room.default if limit is None else room.limit)


def read_page(context: ToolContext, page: PageIndex = "", start: int | None = None, length: int | None = None) -> str:
    """Return a range of a text, the entries of a folder or of a run of pages, or the table of contents.

    Without `start`, a list that is too long for one answer comes in runs.
    """
    agent = context.agent
    in_runs, start = start is None, start or 0
    room = agent._answer_room()
    if not page:
        lines = agent.view(start, _LIST_LENGTH + 1)
        is_long = len(lines) > _LIST_LENGTH or room.count_lines(lines, room.limit) < len(lines)
        runs = agent._list_runs("", room) if is_long and in_runs else None
        return runs or format_lines(lines, start, _LIST_LENGTH, room)
    runs = agent._list_runs(page, room) if in_runs or read_span(page) else None
    if runs is not None:
        return runs
    found = agent.get_page(page)
    if isinstance(found, ContentsPage):
        lines = [format_entry(child) for child in agent.children(page, start, _LIST_LENGTH + 1)]
        return format_lines(lines, start, _LIST_LENGTH, room)
    originals = agent.originals(page)
    text = agent.read_page(page, start, READ_LENGTH if length is None else min(length, _MAX_LENGTH))
    total = agent.length(page)
    if not text and originals:
        return format_originals(originals, room, room.limit)
    if not text:
        return f"{page} has {total} characters; there is nothing from {start} on." if total else f"{page} is empty."
    quoting = replace(room, count=lambda part: room.count(quote_range(part, found, start)))
    reserved = 3 * _FOOTER_TOKENS if originals else _FOOTER_TOKENS
    text = text[: quoting.cut(text, (room.default if length is None else room.limit) - reserved)]
    answer = quote_range(text, found, start)
    end = start + len(text)
    if len(text) < total:
        more = f" Go on with start={end}." if end < total else ""
        answer += f"\n[characters {start}–{end} of {total} of {page}.{more}]"
    if originals and end == total:
        answer += "\n" + format_originals(originals, room, room.limit - room.count(answer))
    return answer


def expand_details(context: ToolContext, page: PageIndex) -> str:
    """Open a page."""
    context.agent.expand_details(page)
    return f"{page} is open in your window."


def hide_details(context: ToolContext, page: PageIndex) -> str:
    """Hide a page."""
    context.agent.hide_details(page)
    return f"{page} is one line from the next fold on."


def write_page(
    context: ToolContext,
    name: str | None = None,
    summary: str | None = None,
    text: str | None = None,
    folder: PageIndex | None = None,
    page: PageIndex | None = None,
    pages: list[PageIndex] | None = None,
) -> str:
    """Write a page, change one, or gather pages in a folder."""
    if page is not None:
        if folder is not None and folder != context.agent.get_page(page).parent:
            raise InvalidValue(f"is {folder!r}; page {page!r} is in another folder. Call move_page.", argument="folder")
        return _change_page(context, page, name, summary, text)
    if not name:
        raise InvalidValue("is missing. A new page needs a name; to change a page, name it in page.", argument="name")
    parent = folder or _notes_folder(context)
    about = summary or _derive_summary(text or "")
    if pages is not None:
        if text:
            raise InvalidValue("is given with pages; a folder has no text. Write another page for it.", argument="text")
        index = context.agent.create_contents_page(name, about, parent, pages)
        return f"Made folder {index} of {count_pages(len(pages))}."
    index = context.agent.create_detail_page(name, about[:MAX_DESCRIPTION], text or "", parent)
    return f"Wrote {index}."


def move_page(context: ToolContext, page: PageIndex, folder: PageIndex, before: PageIndex | None = None) -> str:
    """Move a page."""
    moved = context.agent.move_page(page, folder, before)
    return f"Moved {page}; it is {moved[page]} now." if page in moved else f"Moved {page} into {folder}."


def remove_page(context: ToolContext, page: PageIndex) -> str:
    """Remove a page."""
    return f"Removed {count_pages(context.agent.remove_page(page))}."


def archive(context: ToolContext, page: PageIndex, cold: bool = False) -> str:
    """Archive a page."""
    context.agent.archive(page, cold=cold)
    back = "recall" if cold else "expand_details"
    return f"Archived {page}; {back} brings it back."


def recall(context: ToolContext, page: PageIndex) -> str:
    """Return a page from the cold archive; the answer says if it is still archived in its place."""
    index = context.agent.recall(page)
    if context.agent.get_page(index).effective is Lifecycle.ACTIVE:
        return f"{index} is back in its place."
    return f"{index} is in its place but not in your window; expand_details opens it there."


def budget(context: ToolContext) -> str:
    """Return how full the window is."""
    return str(context.agent.budget())


def window(
    context: ToolContext,
    do: str,
    id: str,
    action: str | None = None,
    arguments: dict[str, Any] | None = None,
) -> str:
    """Open, use or close a window. Every step checks that the agent may write in the segment of the windows."""
    windows = context.windows
    if windows is None:
        raise InvalidOperation("There are no apps here.")
    if do == "create":
        context.agent.check_permission(windows.place(), "window")
        return f"Opened {windows.open(id, arguments or {}).id}."
    if do == "action" and not action:
        raise InvalidValue("is missing; do='action' needs the id of an action.", argument="action")
    context.agent.check_permission(windows.page_of(id), "window")
    if do == "close":
        summary = (arguments or {}).get("summary")
        if windows._manager.find(id).obsolete:
            return f"{id} is closed already."
        windows.close(id, None if summary is None else str(summary))
        return f"Closed {id}: {clean_line(str(summary))}" if summary else f"Closed {id}."
    if windows.app_of(id) == LAUNCHER:  # its action opens a window
        context.agent.check_permission(windows.place(), "window")
    return windows.act(id, action or "", arguments or {}) or "Done."


def segment(context: ToolContext, do: str, segment: str, permission: str | None = None) -> str:
    """Add or remove a segment, or set its permission."""
    if do == "add":
        return f"Added segment {context.agent.add_segment(segment).id!r}."
    if do == "remove":
        return f"Removed segment {segment!r} with {count_pages(context.agent.remove_segment(segment))}."
    if permission is None or permission not in Permission.__members__:
        raise InvalidValue(f"is {permission!r}; use READ_ONLY, READ_WRITE or SYSTEM_MANAGED.", argument="permission")
    context.agent.set_permission(segment, Permission[permission])
    return f"Segment {segment!r} is {permission} now."


def _prefix_hint(query: Query) -> str:
    """Return the advice to search for a prefix, because a part of a word matches only with a star."""
    spaced = any(not is_unspaced(word) for word in query.words)
    return ", or a word's beginning with a star: book* finds bookshelf" if spaced else ""


def _change_page(context: ToolContext, page: PageIndex, name: str | None, summary: str | None, text: str | None) -> str:
    if name is None and summary is None and text is None:
        raise InvalidValue("is given without a name, a summary or a text to change.", argument="page")
    if text is not None and summary is None and _has_derived_summary(context, page):
        summary = _derive_summary(text)
    context.agent.rewrite(page, name=name, description=summary, detail=text)
    return f"Changed {page}."


def _derive_summary(text: str) -> str:
    """Return the beginning of a text in one line, for a page without a summary of its own."""
    return collapse_whitespace(text)[:_QUOTED]


def _has_derived_summary(context: ToolContext, index: PageIndex) -> bool:
    """Return whether the page's summary is the beginning of its text, so that both change together."""
    page = context.agent.get_page(index)
    if isinstance(page, ContentsPage):
        return False
    return page.description == _derive_summary(context.agent.read_page(index, 0, context.agent.length(index)))


def _notes_folder(context: ToolContext) -> PageIndex:
    """Return the root of the first CUSTOM segment that the agent may write to."""
    for segment in context.agent.list_segments():
        if segment.type is SegmentType.CUSTOM:
            try:
                context.agent.check_permission(segment.root_index, "create_detail_page")
            except QuireError:
                continue
            return segment.root_index
    raise InvalidOperation("There is no segment for your notes. Name a folder.")
