"""Opening folded lines again: the newest exchanges first, as far as there is room.

A chapter that fits only in part is opened, and its older pages go into a new chapter inside it, with the same name and
summary. So at most one more line is shown for each level of chapters.
"""

import sys
from collections.abc import Callable, Sequence
from enum import Enum, auto

from quire.core.plan import Plan
from quire.core.records import PageRecord
from quire.model.pages import Lifecycle, Visibility
from quire.view.fold.folding import RowItem, is_folded_line, level_of, make_chapter


class _Shown(Enum):
    """How much of a folded page is shown after an attempt to open it."""

    NOTHING = auto()
    PART = auto()
    ALL = auto()


class Unfolding:
    """Opens folded lines of the conversation in a plan, in at most `room` more tokens.

    `count` counts the tokens of a line, `head` is the size of the head of a block of lines.
    """

    def __init__(self, plan: Plan, room: int, *, count: Callable[[str], int], head: int) -> None:
        self._plan = plan
        self._left = room
        self._count = count
        self._head = head

    def open_newest(self, row: Sequence[RowItem]) -> None:
        """Open the lines of the first row, newest first, until one does not fit."""
        for item in reversed(row):
            if item.is_line and is_folded_line(item.page):
                self._left += item.page.header.line_tokens
                if self._open(item.page) is not _Shown.ALL:
                    return

    def _open(self, page: PageRecord) -> _Shown:
        """Show a page that takes no room yet, with everything below it, or the newest part of that."""
        if page.header.folder:
            return self._open_folder(page)
        is_hidden = page.header.visibility is Visibility.HIDDEN and not is_folded_line(page)  # somebody hid it
        cost = page.header.summary_tokens if is_hidden else page.header.tokens
        if cost > self._left:
            return _Shown.NOTHING
        self._left -= cost
        if not is_hidden:
            self._plan.change(page, visibility=Visibility.EXPANDED)
        return _Shown.ALL

    def _open_folder(self, folder: PageRecord) -> _Shown:
        line = folder.header.line_tokens + self._head  # the older pages take about as much in a line of their own
        self._left -= line
        children = [page for page in self._plan.members(folder.key) if page.header.lifecycle is Lifecycle.ACTIVE]
        first, shown = len(children), _Shown.ALL
        while first and shown is _Shown.ALL:
            shown = self._open(children[first - 1])
            first -= shown is not _Shown.NOTHING
        if first == len(children):
            self._left += line
            return _Shown.NOTHING
        if not first and shown is _Shown.ALL:
            self._left += line
        opened = self._plan.change(folder, visibility=Visibility.EXPANDED)
        self._gather(opened, children[:first])
        return shown if not first else _Shown.PART

    def _gather(self, folder: PageRecord, older: Sequence[PageRecord]) -> None:
        """Move the older pages of an opened chapter into a chapter inside it."""
        if not older or (len(older) == 1 and is_folded_line(older[0])):
            return
        make_chapter(
            self._plan,
            older,
            folder.header.name,
            folder.header.description,
            level=1 + max(map(level_of, older)),
            count=self._count,
            before=sys.maxsize,
        )
