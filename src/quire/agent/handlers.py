"""What runs when a model calls a tool: each does one thing through the agent's face and answers in a short text."""

from typing import Any

from quire.agent.agent import READ_LENGTH, Desk
from quire.agent.listing import entry, found, listing
from quire.errors import InvalidOperation, InvalidValue, QuireError, short_repr
from quire.model.pages import ContentsPage, Lifecycle, PageIndex, Permission, SegmentType
from quire.model.text import MAX_DESCRIPTION, in_one_line
from quire.search.query import Query, parse
from quire.search.self_search_filter import NOTHING
from quire.search.tokenizer import is_unspaced

_LISTED = 40
_HITS = 5
_MOST_HITS = 50
_SAID = 200
_LONGEST = 20_000
"""Characters that one call reads at most; the answer says how to go on."""
_FOOT = 32
"""Tokens of the line that says so."""


def find(desk: Desk, query: str, limit: int | None = None) -> str:
    """Search; one line a hit."""
    asked = parse(query)
    if not asked.clauses:
        raise InvalidValue(f"query is {short_repr(query)}; it holds no word to look for.")
    at_hand, most = desk.at_hand(), min(limit or _HITS, _MOST_HITS)
    hits = [hit for hit in desk.agent.find(query, most + len(at_hand)) if hit.index not in at_hand][:most]
    if not hits:
        return f"{NOTHING}{query[:_SAID]!r}. Try fewer or other words{_hint(asked)}."
    room = desk.agent.room()
    return found(hits, room, room.usual if limit is None else room.most)


def read_page(desk: Desk, page: PageIndex = "", start: int = 0, length: int | None = None) -> str:
    """A range of a text, or the entries of a folder, or the table of contents."""
    room = desk.agent.room()
    if not page:
        return listing(desk.agent.view(start, _LISTED + 1), start, _LISTED, room)
    if isinstance(desk.agent.get_page(page), ContentsPage):
        lines = [entry(child) for child in desk.agent.children(page, start, _LISTED + 1)]
        return listing(lines, start, _LISTED, room)
    text = desk.agent.read_page(page, start, READ_LENGTH if length is None else min(length, _LONGEST))
    total = desk.agent.length(page)
    if not text:
        return f"{page} has {total} characters; there is nothing from {start} on." if total else f"{page} is empty."
    text = text[: room.cut(text, (room.usual if length is None else room.most) - _FOOT)]
    if len(text) == total:
        return text
    end = start + len(text)
    more = f" Go on with start={end}." if end < total else ""
    return f"{text}\n[characters {start}–{end} of {total} of {page}.{more}]"


def expand_details(desk: Desk, page: PageIndex) -> str:
    """Open a page."""
    desk.agent.expand_details(page)
    return f"{page} is open in your window."


def hide_details(desk: Desk, page: PageIndex) -> str:
    """Hide a page."""
    desk.agent.hide_details(page)
    return f"{page} is one line from the next fold on."


def write_page(
    desk: Desk,
    name: str | None = None,
    summary: str | None = None,
    text: str | None = None,
    folder: PageIndex | None = None,
    page: PageIndex | None = None,
    pages: list[PageIndex] | None = None,
) -> str:
    """Write, change or gather."""
    if page is not None:
        return _change(desk, page, name, summary, text)
    if not name:
        raise InvalidValue("write_page needs a name for a new page, or page to change one.")
    parent = folder or _notes(desk)
    about = summary or _derived(text or "")
    if pages is not None:
        index = desk.agent.create_contents_page(name, about, parent, pages)
        return f"Made folder {index} of {len(pages)} pages."
    index = desk.agent.create_detail_page(name, about[:MAX_DESCRIPTION], text or "", parent)
    return f"Wrote {index}."


def move_page(desk: Desk, page: PageIndex, folder: PageIndex, before: PageIndex | None = None) -> str:
    """Move a page."""
    moved = desk.agent.move_page(page, folder, before)
    return f"Moved {page}; it is {moved[page]} now." if page in moved else f"Moved {page} into {folder}."


def remove_page(desk: Desk, page: PageIndex) -> str:
    """Remove a page."""
    return f"Removed {desk.agent.remove_page(page)} pages."


def archive(desk: Desk, page: PageIndex, cold: bool = False) -> str:
    """Archive a page."""
    desk.agent.archive(page, cold=cold)
    back = "recall" if cold else "expand_details"
    return f"Archived {page}; {back} brings it back."


def recall(desk: Desk, page: PageIndex) -> str:
    """Bring a page back from the cold archive; one that is put away in its place is told as such."""
    back = desk.agent.recall(page)
    if desk.agent.get_page(back).effective is Lifecycle.ACTIVE:
        return f"{back} is back in its place."
    return f"{back} is in its place but not in your window; expand_details opens it there."


def budget(desk: Desk) -> str:
    """How full the window is."""
    return str(desk.agent.budget())


def window(
    desk: Desk,
    do: str,
    id: str,  # noqa: A002 - the word a model knows
    action: str | None = None,
    arguments: dict[str, Any] | None = None,
) -> str:
    """Open, use or close a window."""
    windows = desk.windows()
    if windows is None:
        raise InvalidOperation("There are no apps here.")
    if do == "create":
        return windows.create(id, arguments or {})
    if do == "close":
        summary = (arguments or {}).get("summary")
        return windows.close(id, None if summary is None else str(summary))
    if not action:
        raise InvalidValue("do='action' needs the action's id.")
    return windows.act(id, action, arguments or {})


def segment(desk: Desk, do: str, segment: str, permission: str | None = None) -> str:
    """Manage segments."""
    if do == "add":
        return f"Added segment {desk.agent.add_segment(segment).id!r}."
    if do == "remove":
        return f"Removed segment {segment!r} with {desk.agent.remove_segment(segment)} pages."
    if permission is None or permission not in Permission.__members__:
        raise InvalidValue(f"permission is {permission!r}; use READ_ONLY, READ_WRITE or SYSTEM_MANAGED.")
    desk.agent.set_permission(segment, Permission[permission])
    return f"Segment {segment!r} is {permission} now."


def _hint(asked: Query) -> str:
    """What else could be asked for: words are looked for as they are written."""
    spaced = any(not is_unspaced(word) for word in asked.words)
    return ", or a word's beginning with a star: flight* finds flights" if spaced else ""


def _change(desk: Desk, page: PageIndex, name: str | None, summary: str | None, text: str | None) -> str:
    if name is None and summary is None and text is None:
        raise InvalidValue("write_page with page needs a name, a summary or a text to change.")
    if text is not None and summary is None and _is_derived(desk, page):
        summary = _derived(text)
    desk.agent.rewrite(page, name=name, description=summary, detail=text)
    return f"Changed {page}."


def _derived(text: str) -> str:
    """The summary of a page that was given none: how its text begins, in one line."""
    return in_one_line(text)[:_SAID]


def _is_derived(desk: Desk, page: PageIndex) -> bool:
    """Whether a page's summary was made from its text, so that it goes with the text."""
    kept = desk.agent.get_page(page)
    if isinstance(kept, ContentsPage):
        return False
    return kept.description == _derived(desk.agent.read_page(page, 0, desk.agent.length(page)))


def _notes(desk: Desk) -> PageIndex:
    """The root of the first segment that an agent may write its notes into."""
    for place in desk.agent.list_segments():
        if place.type is SegmentType.CUSTOM:
            try:
                desk.agent.check_permission(place.root_index, "create_detail_page")
            except QuireError:
                continue
            return place.root_index
    raise InvalidOperation("There is no segment for your notes: name a folder.")
