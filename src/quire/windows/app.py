"""App: the base class of apps, the values of the windows API, the launcher, and the registry of apps."""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from inspect import signature
from typing import Annotated, Any, Literal

from msgspec import Struct

from quire.errors import InvalidOperation, InvalidValue, NoSuchApp, short_repr
from quire.model.pages import PageIndex
from quire.model.text import collapse_whitespace
from quire.windows.actions import Action, Parameter, action, actions_of, build_action

Content = str | Sequence[str] | Mapping[str | int, str]
"""The content of a window: a text, a list of items (numbered from 1), or items by their ids."""

Contents = str | tuple[tuple[str, str], ...]
"""Immutable content: a text, or pairs of id and text."""


class Refresh(Struct, frozen=True):
    """Returned by an action to refresh its window. A window with `append` moves to the end."""

    text: str = ""


class Close(Struct, frozen=True):
    """Returned by an action to close its window, with a summary that is stored."""

    summary: str = ""
    text: str = ""


class App:
    """The base class of apps. Write `content`, methods with `@action`, and `save` and `restore` if there is state.

    A window is one object of the class. If the class has a method `open`, its parameters are the arguments to open a
    window, with the types that actions have. Every method may be `async`. The window's `id` is set before `open` runs.

    When space is short, `important` windows are shortened last and `pinned` windows never. With `append` a refreshed
    window moves to the end of what is shown.
    """

    name: str = ""
    description: str = ""
    important: bool = False
    pinned: bool = False
    append: bool = False
    closing: str = "Close"
    """The description of the action `close`."""

    id: str = ""

    def content(self) -> Content | Awaitable[Content]:
        """Return what the window shows now."""
        return ""

    def save(self) -> Any:
        """Return the state of the window as JSON values (texts, numbers, lists, dicts, None)."""
        return None

    def restore(self, saved: Any) -> Any:
        """Restore the state that `save` returned."""

    def summary(self) -> str | Awaitable[str]:
        """Return the summary to store if quire closes the window. By default it is the beginning of the content."""
        return ""

    def closed(self) -> Any:
        """Release resources after the window was closed."""


def app_actions(kind: type[App]) -> tuple[Action, ...]:
    """Return the actions of an app's windows, always with `close`."""
    own = tuple(found for found in actions_of(kind) if found.name != "close")
    summary = Parameter(name="summary", kind="string", required=False, nullable=True)
    return (*own, Action(name="close", description=kind.closing, parameters=(summary,)))


def app_opening(kind: type[App], name: str) -> Action:
    """Return the parameters to open a window of the app, as an action."""
    method = getattr(kind, "open", None)
    return Action(name=name) if method is None else build_action(method, name, owner=kind)


def freeze_content(content: object) -> Contents:
    """Return an immutable copy of an app's content. Raise `InvalidValue` if it has another type.

    Views show this error in the place of the content.
    """
    if isinstance(content, str):
        return str(content)
    if isinstance(content, Mapping):
        return tuple((_id(key), _item(text)) for key, text in list(content.items()))
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return tuple((str(number), _item(text)) for number, text in enumerate(list(content), 1))
    raise InvalidValue(f"The content is {short_repr(content)}; text, a list of texts or a dict of texts is needed.")


def _id(key: object) -> str:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return str(key)
    raise InvalidValue(f"An item of a window has the id {short_repr(key)}; text or a whole number is needed.")


def _item(text: object) -> str:
    if isinstance(text, str):
        return str(text)
    raise InvalidValue(f"An item of a window is {short_repr(text)}; text is needed.")


EventKind = Literal["opened", "refreshed", "acted", "closed"]


class Window(Struct, frozen=True, kw_only=True):
    """A window with its current content and its actions.

    `content` is a text, or items as pairs of id and text. `error` is the error of its app, if there is one. `seq` is
    the journal entry that gave the window its place. A closed window is `obsolete`, with its `summary`.
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
    """An event of a window: it was opened, refreshed, acted on or closed, by `actor`, in the journal entry `seq`."""

    kind: EventKind
    window: str
    app: str
    page: PageIndex
    actor: str
    seq: int
    action: str = ""
    text: str = ""


LAUNCHER = "launcher"


class AppInfo(Struct, frozen=True):
    """The description of an app, and the parameters to open it."""

    description: str
    opening: Action


class Launch(Struct, frozen=True):
    """Returned by the launcher to open a window, as the actor of the action."""

    app: str
    arguments: Mapping[str, Any]


class Launcher(App):
    """Lists the registered apps with the arguments to open them, and opens them."""

    name = LAUNCHER
    description = "Apps you can open"

    def __init__(self, apps: Callable[[], Mapping[str, AppInfo]]) -> None:
        self._apps = apps

    def content(self) -> dict[str | int, str]:
        return {
            name: f"{info.description} ({info.opening.usage})" if info.opening.parameters else info.description
            for name, info in self._apps().items()
        }

    @action("Open a window of an app")
    def launch(self, app: str, arguments: Annotated[str, "what opening takes, as a JSON object"] = "{}") -> Launch:
        try:
            found = json.loads(arguments or "{}")
        except ValueError as error:
            raise InvalidValue(f"{short_repr(arguments)} is not JSON: {error}.", argument="arguments") from None
        if not isinstance(found, dict | None):
            raise InvalidValue(
                f'is {short_repr(arguments)}; an object like {{"text": "…"}} is needed.', argument="arguments"
            )
        return Launch(app, found or {})


_NAME = re.compile(r"[^\W_][\w-]{0,39}")
_MAX_SAVED = 4 << 20
_MAX_IDENTITY = 200


class RegisteredApp:
    """A registered app: the function that creates its objects, the parameters to open it, and its actions.

    It has at most `most` open windows, and at most one for each value of the parameter `one_per`.
    """

    def __init__(
        self,
        name: str,
        kind: type[App],
        make: Callable[[], App],
        *,
        most: int | None = None,
        one_per: str | None = None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.make = make
        self.opening = app_opening(kind, name)
        self.actions: tuple[Action, ...] = app_actions(kind)
        self.most = most
        self.one_per = one_per
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidValue(f"is {short_repr(most)}; a whole number from 1 is needed.", argument="most")
        names = [parameter.name for parameter in self.opening.parameters]
        if one_per is not None and one_per not in names:
            needed = f"one of {', '.join(names)} is needed" if names else "the app opens without parameters"
            raise InvalidValue(f"is {short_repr(one_per)}; {needed}.", argument="one_per")

    def identify(self, arguments: Mapping[str, Any]) -> str:
        """Return the identity of the window that these arguments open; "" if every call opens a new window."""
        if self.one_per is None:
            return ""
        default = signature(getattr(self.kind, "open")).parameters[self.one_per].default  # noqa: B009 - `App` has none
        value = json.dumps(arguments.get(self.one_per, default), default=str)
        text = f"{self.one_per}={value}"
        return text if len(text) <= _MAX_IDENTITY else f"{self.one_per}#{sha256(value.encode()).hexdigest()}"


class AppRegistry:
    """The apps of one context, by name."""

    def __init__(self) -> None:
        self._apps: dict[str, RegisteredApp] = {}

    def add(
        self,
        kind: type[App],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
        name: str | None = None,
        *,
        most: int | None = None,
        one_per: str | None = None,
    ) -> str:
        """Register an app's class with the arguments of its objects; return its name. Raise `InvalidValue`."""
        if not (isinstance(kind, type) and issubclass(kind, App)):
            raise InvalidValue(f"is {short_repr(kind)}; a subclass of quire.App is needed.", argument="app")
        found = (kind.name or kind.__name__.lower()) if name is None else name
        if not isinstance(found, str) or not _NAME.fullmatch(found):
            raise InvalidValue(
                f"The app's name is {short_repr(found)}; 1 to 40 letters, digits, '_' and '-' are needed."
            )
        made = partial(kind, *arguments, **options)
        self._apps[found] = RegisteredApp(found, kind, made, most=most, one_per=one_per)
        return found

    def get(self, name: object) -> RegisteredApp:
        """Return the app of this name. Raise `NoSuchApp`."""
        found = self.find(name)
        if found is None:
            raise NoSuchApp(name, [f"{app.name}({app.opening.params})" for app in self._apps.values()])
        return found

    def find(self, name: object) -> RegisteredApp | None:
        """Return the app of this name, or None."""
        return self._apps.get(name) if isinstance(name, str) else None

    def describe_apps(self) -> dict[str, AppInfo]:
        """Return the apps as the launcher shows them, without the launcher."""
        return {
            name: AppInfo(collapse_whitespace(app.kind.description or app.kind.__doc__ or ""), app.opening)
            for name, app in self._apps.items()
            if name != LAUNCHER
        }

    def add_missing(self, other: "AppRegistry") -> None:
        """Add the apps of another registry that this one does not have."""
        self._apps = {**other._apps, **self._apps}

    def __len__(self) -> int:
        return len(self._apps)


def encode_saved(value: object) -> str:
    """Return what an app saved as JSON text. Raise `InvalidOperation` if it is not a JSON value."""
    if value is None:
        return ""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair can only be stored escaped
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOperation(f"The app saved {short_repr(value)}, which is not a JSON value: {error}.") from None
    if len(text) > _MAX_SAVED:
        raise InvalidOperation(f"The app saved {len(text):,} characters; the limit is {_MAX_SAVED:,}.")
    return text
