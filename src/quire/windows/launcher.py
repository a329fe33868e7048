"""The launcher: a window that lists the apps there are and opens them."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec import Struct

from quire.errors import InvalidValue, shown
from quire.windows.actions import Action, action
from quire.windows.app import App

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
            raise InvalidValue(f"arguments {shown(arguments)} is not JSON: {error}.") from None
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InvalidValue(f'arguments is {shown(arguments)}; an object like {{"text": "…"}} is needed.')
    return found


def _line(listed: Listed) -> str:
    params = f" ({listed.opening.told})" if listed.opening.parameters else ""
    return f"{listed.description}{params}"
