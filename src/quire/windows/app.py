"""App: what makes windows. One object of it is one window, with its own state.

The values a user of windows holds.

The launcher: a window that lists the apps there are and opens them.

The apps there are, by name.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Struct

from quire.errors import InvalidOperation, InvalidValue, NoSuchApp, short_repr
from quire.model.pages import PageIndex
from quire.model.text import collapse_whitespace
from quire.windows.actions import Action, Parameter, action, actions_of, describe

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
    raise InvalidValue(f"content() gave {short_repr(content)}; text, a list of texts or texts by id are needed.")


def _id(key: object) -> str:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return str(key)
    raise InvalidValue(f"content() gave an item with the id {short_repr(key)}; text or a whole number is needed.")


def _item(text: object) -> str:
    if isinstance(text, str):
        return str(text)
    raise InvalidValue(f"content() gave {short_repr(text)} as an item; text is needed.")


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


NAME = "launcher"


class Listed:
    """What the launcher says of an app."""

    __slots__ = ("description", "opening")

    def __init__(self, description: str, opening: Action) -> None:
        self.description = description
        self.opening = opening


class Launch(Struct, frozen=True):
    """What the launcher returns to have a window opened, in the name of whoever acts."""

    app: str
    arguments: Mapping[str, Any]


class Launcher(App):
    """Lists the registered apps by name, each with what opening it takes, and opens them."""

    name = NAME
    description = "Apps you can open"

    def __init__(self, apps: Callable[[], Mapping[str, Listed]]) -> None:
        self._apps = apps

    def content(self) -> dict[str | int, str]:
        return {name: _line(listed) for name, listed in self._apps().items() if name != NAME}

    @action("Open a window of an app")
    def launch(self, app: str, arguments: Annotated[str, "what opening takes, as a JSON object"] = "{}") -> Launch:
        return Launch(app, as_arguments(arguments))


def as_arguments(arguments: object) -> Mapping[str, Any]:
    """Arguments as an object, also where they come as JSON text. Raises `InvalidValue`."""
    found = arguments
    if isinstance(found, str):
        try:
            found = json.loads(found or "{}")
        except ValueError as error:
            raise InvalidValue(f"arguments {short_repr(arguments)} is not JSON: {error}.") from None
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InvalidValue(f'arguments is {short_repr(arguments)}; an object like {{"text": "…"}} is needed.')
    return found


def _line(listed: Listed) -> str:
    params = f" ({listed.opening.told})" if listed.opening.parameters else ""
    return f"{listed.description}{params}"


_NAME = re.compile(r"[^\W_][\w-]{0,39}")
_MOST_SAVED = 4 << 20


class Registered:
    """An app that can be opened: how its objects are made, what opening takes, what can be done in its windows."""

    __slots__ = ("actions", "kind", "make", "name", "opening")

    def __init__(self, name: str, kind: type[App], make: Callable[[], App]) -> None:
        self.name = name
        self.kind = kind
        self.make = make
        self.opening = app_opening(kind, name)
        self.actions: tuple[Action, ...] = app_actions(kind)


class Registry:
    """The apps of one context, by name."""

    def __init__(self) -> None:
        self._apps: dict[str, Registered] = {}

    def add(
        self, kind: type[App], arguments: tuple[Any, ...], options: Mapping[str, Any], name: str | None = None
    ) -> str:
        """Register an app's class, with what its objects are made with; its name. Raises `InvalidValue`."""
        if not (isinstance(kind, type) and issubclass(kind, App)):
            raise InvalidValue(f"app is {short_repr(kind)}; a class made from quire.App is needed.")
        found = app_name(kind) if name is None else name
        if not isinstance(found, str) or not _NAME.fullmatch(found):
            raise InvalidValue(
                f"The app's name is {short_repr(found)}; 1 to 40 letters, digits, '_' and '-' are needed."
            )
        self._apps[found] = Registered(found, kind, lambda: kind(*arguments, **options))
        return found

    def get(self, name: object) -> Registered:
        """The app of this name. Raises `NoSuchApp`."""
        found = self.find(name)
        if found is None:
            raise NoSuchApp(name, [f"{app.name}({app.opening.params})" for app in self._apps.values()])
        return found

    def find(self, name: object) -> Registered | None:
        """The app of this name, or None."""
        return self._apps.get(name) if isinstance(name, str) else None

    def listed(self) -> dict[str, Listed]:
        """The apps as the launcher shows them."""
        return {
            name: Listed(collapse_whitespace(app.kind.description or app.kind.__doc__ or ""), app.opening)
            for name, app in self._apps.items()
        }

    def take_over(self, other: "Registry") -> None:
        """Know what another registry knows and this one does not."""
        self._apps = {**other._apps, **self._apps}

    def __len__(self) -> int:
        return len(self._apps)


def as_saved(value: object) -> str:
    """What an app saved as it is stored. Raises `InvalidOperation` if that is no plain value."""
    if value is None:
        return ""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:  # half a character: it can stand there only escaped
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOperation(f"save() gave {short_repr(value)}, which is no plain value: {error}.") from None
    if len(text) > _MOST_SAVED:
        raise InvalidOperation(f"save() gave {len(text):,} characters; at most {_MOST_SAVED:,} are kept.")
    return text


def from_saved(text: str) -> Any:
    """What was saved."""
    return json.loads(text) if text else None
