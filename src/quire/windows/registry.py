"""The apps there are, by name."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from quire.errors import InvalidOperation, InvalidValue, NoSuchApp, shown
from quire.text import in_one_line
from quire.windows.actions import Action
from quire.windows.app import App, app_actions, app_name, app_opening
from quire.windows.launcher import Listed

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
            raise InvalidValue(f"app is {shown(kind)}; a class made from quire.App is needed.")
        found = app_name(kind) if name is None else name
        if not isinstance(found, str) or not _NAME.fullmatch(found):
            raise InvalidValue(f"The app's name is {shown(found)}; 1 to 40 letters, digits, '_' and '-' are needed.")
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
            name: Listed(in_one_line(app.kind.description or app.kind.__doc__ or ""), app.opening)
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
        raise InvalidOperation(f"save() gave {shown(value)}, which is no plain value: {error}.") from None
    if len(text) > _MOST_SAVED:
        raise InvalidOperation(f"save() gave {len(text):,} characters; at most {_MOST_SAVED:,} are kept.")
    return text


def from_saved(text: str) -> Any:
    """What was saved."""
    return json.loads(text) if text else None
