"""App: what makes windows. One object of it is one window, with its own state."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from quire.errors import InvalidValue, shown
from quire.windows.actions import Action, Parameter, actions_of, describe

Content = str | Sequence[str] | Mapping[str | int, str]
"""What a window shows: a text, or items: texts that are numbered from 1, or texts by their ids."""

Contents = str | tuple[tuple[str, str], ...]
"""Content that nobody can change any more: a text, or items with their ids."""


class Refresh(Struct, frozen=True):
    """What an action returns to have its window refreshed: a window that appends takes a new place."""

    text: str = ""


class Close(Struct, frozen=True):
    """What an action returns to have its window closed, with a summary that stays."""

    summary: str = ""
    text: str = ""


class App:
    """The base of apps. Write `content`, methods with `@action`, and `save` and `restore` if there is state to keep.

    A window is one object of the class. If the class has a method `open`, its parameters are what opening takes, with
    the types that actions have. Every method may be `async`. A window's `id` is known from `open` on.

    `important` windows give way last when space is short, `pinned` ones never; `append` lets a refreshed window take
    a new place after everything that is shown, instead of staying where it is.
    """

    name: str = ""
    description: str = ""
    important: bool = False
    pinned: bool = False
    append: bool = False
    closing: str = "Close"
    """What the action `close` does, in the window's own language."""

    id: str = ""

    def content(self) -> Content | Awaitable[Content]:
        """What the window shows now."""
        return ""

    def save(self) -> Any:
        """What the window needs to come back: plain values (texts, numbers, lists, dicts, None)."""
        return None

    def restore(self, saved: Any) -> Any:
        """Become the window that saved this."""

    def closed(self) -> Any:
        """Let go of what is held: the window was closed."""


def app_name(kind: type[App]) -> str:
    """The name of an app: its own, or that of its class."""
    return kind.name or kind.__name__.lower()


def app_actions(kind: type[App]) -> tuple[Action, ...]:
    """What can be done in an app's windows; every one can be closed."""
    own = tuple(found for found in actions_of(kind) if found.name != "close")
    summary = Parameter(name="summary", kind="string", required=False, nullable=True)
    return (*own, Action(name="close", description=kind.closing, parameters=(summary,)))


def app_opening(kind: type[App], name: str) -> Action:
    """What opening a window of the app takes."""
    method = getattr(kind, "open", None)
    return Action(name=name) if method is None else describe(method, name)


def settled(content: object) -> Contents:
    """Content as a value of its own, with nothing of the app's in it. Raises `InvalidValue` if it is none."""
    if isinstance(content, str):
        return str(content)
    if isinstance(content, Mapping):
        return tuple((_id(key), _item(text)) for key, text in list(content.items()))
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return tuple((str(number), _item(text)) for number, text in enumerate(list(content), 1))
    raise InvalidValue(f"content() gave {shown(content)}; text, a list of texts or texts by id are needed.")


def _id(key: object) -> str:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return str(key)
    raise InvalidValue(f"content() gave an item with the id {shown(key)}; text or a whole number is needed.")


def _item(text: object) -> str:
    if isinstance(text, str):
        return str(text)
    raise InvalidValue(f"content() gave {shown(text)} as an item; text is needed.")
