"""Actions: parameters from signatures, schemas, and errors that a model can act on."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest

from quire import App, InvalidValue, action
from quire.errors import NoSuchAction
from quire.windows.actions import actions_of, build_action, find_action
from quire.windows.app import app_actions, app_opening
from quire.windows.render import Frame, frame_text


class Desk(App):
    """Every kind of parameter."""

    @action("添加条目")
    def add(self, text: str) -> None: ...

    @action
    def paint(
        self,
        colour: Literal["red", "blue"],
        layers: Literal[1, 2] = 1,
        tags: list[str] | None = None,
        strength: Annotated[float, "from 0 to 1"] = 0.5,
        wet: bool = False,
    ) -> None:
        """Paint it.

        More than one line.
        """

    @action("Close it")
    def close(self) -> None: ...

    def open(self, size: int, name: str = "") -> None: ...


class Desk2(Desk):
    @action("Another way to add", name="put")
    def add(self, text: str) -> None: ...

    @action
    async def wait(self, seconds: float) -> None: ...


def test_the_short_form_says_what_each_argument_is() -> None:
    found = {one.name: one for one in app_actions(Desk)}
    assert found["add"].params == "text:string"
    assert found["add"].description == "添加条目"
    assert found["paint"].params == "colour:red|blue, layers:1|2?, tags:string[]?, strength:float?, wet:bool?"
    assert found["paint"].description == "Paint it."
    assert app_opening(Desk, "desk").params == "size:int, name:string?"


def test_a_window_shows_what_is_said_of_an_argument() -> None:
    paint = find_action(app_actions(Desk), "paint")
    assert "strength:float? (from 0 to 1), wet:bool?" in paint.usage
    assert 'params="colour:red|blue, ' in frame_text(Frame(id="desk", actions=(paint,)), "amber-417")
    assert "strength:float? (from 0 to 1)" in frame_text(Frame(id="desk", actions=(paint,)), "amber-417")
    with pytest.raises(InvalidValue, match=r"strength:float\?, wet"):  # an error shortens the value
        paint.check({"size": 1})


def test_every_window_can_be_closed_and_no_app_changes_what_that_takes() -> None:
    close = app_actions(Desk)[-1]
    assert (close.name, close.params) == ("close", "summary:string?")
    assert [one.name for one in app_actions(Desk)].count("close") == 1


def test_actions_are_inherited_in_order_and_may_be_renamed() -> None:
    assert [one.name for one in actions_of(Desk2)] == ["put", "paint", "close", "wait"]


def test_the_schema_is_that_of_the_signature() -> None:
    schema = find_action(app_actions(Desk), "paint").schema()
    assert schema == {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "layers": {"type": "integer", "enum": [1, 2]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "strength": {"type": "number", "description": "from 0 to 1"},
            "wet": {"type": "boolean"},
        },
        "required": ["colour"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"colour": "red"}, {"colour": "red"}),
        ({"colour": "red", "layers": 2.0}, {"colour": "red", "layers": 2}),
        ({"colour": "blue", "tags": ["a", "字"]}, {"colour": "blue", "tags": ["a", "字"]}),
        ({"colour": "blue", "tags": None, "strength": 1}, {"colour": "blue", "tags": None, "strength": 1.0}),
    ],
)
def test_arguments_are_taken_as_their_types(given: dict[str, Any], taken: dict[str, Any]) -> None:
    found = find_action(app_actions(Desk), "paint").check(given)
    assert found == taken
    assert [type(value) for value in found.values()] == [type(value) for value in taken.values()]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs the argument 'colour'"),
        ({"colour": "green"}, "one of 'red', 'blue' is needed"),
        ({"colour": "red", "color": 1}, "has no argument 'color'; it takes (colour:red|blue"),
        ({"colour": 1}, "is 1; text is needed"),
        ({"colour": None}, "is None; text is needed"),
        ({"colour": "red", "layers": True}, "a whole number is needed"),
        ({"colour": "red", "layers": 1.5}, "a whole number is needed"),
        ({"colour": "red", "strength": "1"}, "a number is needed"),
        ({"colour": "red", "strength": None}, "a number is needed"),
        ({"colour": "red", "tags": "a"}, "a list is needed"),
        ({"colour": "red", "tags": [1]}, "text is needed"),
        ({"colour": "red", "wet": 1}, "true or false is needed"),
        ("colour=red", "an object with"),
        ({"colour": "x" * 10_000_000}, "10,000,000 long"),
    ],
)
def test_a_wrong_argument_is_named_with_what_would_do(given: Any, said: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        find_action(app_actions(Desk), "paint").check(given)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 600


def test_an_unknown_action_is_answered_with_those_there_are() -> None:
    with pytest.raises(NoSuchAction, match=r"No action 'erase' here. Actions: add\(text:string\), paint"):
        find_action(app_actions(Desk), "erase")


def with_nothing(self: Any, text) -> None: ...  # type: ignore[no-untyped-def]
def with_dict(self: Any, text: dict[str, str]) -> None: ...
def with_union(self: Any, text: str | int) -> None: ...
def with_mixed(self: Any, text: Literal["a", 1]) -> None: ...
def with_lists(self: Any, text: list[list[str]]) -> None: ...
def with_bare_list(self: Any, text: list) -> None: ...  # type: ignore[type-arg]
def with_stars(self: Any, *text: str) -> None: ...
def with_pairs(self: Any, **text: str) -> None: ...
def with_place(self: Any, text: str, /) -> None: ...
def with_any(self: Any, text: Any) -> None: ...
def with_unknown(self: Any, text: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    "method",
    [
        with_nothing,
        with_dict,
        with_union,
        with_mixed,
        with_lists,
        with_bare_list,
        with_stars,
        with_pairs,
        with_place,
        with_any,
        with_unknown,
    ],
)
def test_a_signature_that_no_schema_can_say_is_refused_where_it_is_written(method: Callable[..., Any]) -> None:
    with pytest.raises(InvalidValue, match=r"text|types"):
        action(method)
    with pytest.raises(InvalidValue):
        build_action(method, "act")
