"""The values a user of windows holds."""

from typing import Literal

from msgspec import Struct

from quire.pages import PageIndex
from quire.windows.actions import Action
from quire.windows.app import Contents

Happening = Literal["opened", "refreshed", "acted", "closed"]


class Window(Struct, frozen=True, kw_only=True):
    """A window as it is now: what it shows and what can be done in it.

    `content` is a text, or items as pairs of id and text. `error` says what went wrong in its app, if something did.
    `seq` is the journal entry that gave it its place. A closed one is `obsolete`, and `summary` is what stayed of it.
    """

    id: str
    app: str
    page: PageIndex
    description: str = ""
    content: Contents = ""
    actions: tuple[Action, ...] = ()
    error: str = ""
    summary: str = ""
    important: bool = False
    pinned: bool = False
    append: bool = False
    obsolete: bool = False
    seq: int = 0


class WindowEvent(Struct, frozen=True, kw_only=True):
    """Something that happened to a window: it was opened, refreshed, acted on or closed, by whom, in which entry."""

    kind: Happening
    window: str
    app: str
    page: PageIndex
    actor: str
    seq: int
    action: str = ""
    text: str = ""
