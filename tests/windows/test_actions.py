"""Actions: parameters from signatures, and errors that a model can act on. The list and the pad of quire."""

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest

import quire
from quire import App, Context, InvalidValue, action
from quire.windows.apps import Scratch, Todo


class Desk(App):
    """Every kind of parameter."""

    @action("添加条目", name="put")
    def add(self, text: str) -> None: ...

    @action
    def paint(
        self,
        colour: Literal["red", "blue"],
        layers: Literal[1, 2] = 1,
        tags: list[str] | None = None,
        strength: Annotated[float, "from 0 to 1"] = 0.5,
        wet: bool = False,
    ) -> str:
        """Paint it.

        More than one line.
        """
        return repr((colour, layers, tags, strength, wet))

    @action
    async def wait(self, seconds: float) -> None: ...


class Desk2(Desk):
    @action("Close it")
    def close(self) -> None: ...


@pytest.fixture
def ctx() -> Context:
    ctx = quire.open("memory:")
    ctx.windows.register(Desk2, name="desk")
    ctx.windows.open("desk")
    return ctx


def test_a_window_says_what_its_actions_take(ctx: Context) -> None:
    found = {each.name: each for each in ctx.windows.get("desk_1").actions}
    assert list(found) == ["put", "paint", "wait", "close"]  # in order; no app changes what closing takes
    assert (found["put"].params, found["put"].description) == ("text:string", "添加条目")
    assert found["paint"].params == "colour:red|blue, layers:1|2?, tags:string[]?, strength:float?, wet:bool?"
    assert found["paint"].description == "Paint it."
    assert found["close"].params == "summary:string?"
    assert "from 0 to 1" in ctx.render().messages[-1].text


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"colour": "red"}, ("red", 1, None, 0.5, False)),
        ({"colour": "red", "layers": 2.0, "wet": True}, ("red", 2, None, 0.5, True)),
        ({"colour": "blue", "tags": ["a", "字"], "strength": 1}, ("blue", 1, ["a", "字"], 1.0, False)),
    ],
)
def test_arguments_are_taken_as_their_types(ctx: Context, given: dict[str, Any], taken: object) -> None:
    assert ctx.windows.act("desk_1", "paint", given) == repr(taken)


WRONG: tuple[Any, ...] = (
    *({}, {"colour": "green"}, {"colour": 1}, {"colour": None}, {"colour": "x" * 10_000_000}),
    *({"colour": "red", "color": 1}, {"colour": "red", "layers": True}, {"colour": "red", "layers": 1.5}),
    *({"colour": "red", "strength": "1"}, {"colour": "red", "strength": None}, {"colour": "red", "wet": 1}),
    *({"colour": "red", "tags": "a"}, {"colour": "red", "tags": [1]}),
)


@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_argument_is_an_error_that_is_short(ctx: Context, given: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        ctx.windows.act("desk_1", "paint", given)
    assert len(str(caught.value)) < 600
    said = ctx.tools.call("window", {"do": "action", "id": "desk_1", "action": "paint", "arguments": given})
    assert said.startswith("InvalidValue")
    assert len(said) < 1_000


def with_nothing(self: Any, text) -> None: ...  # type: ignore[no-untyped-def]
def with_dict(self: Any, text: dict[str, str]) -> None: ...
def with_union(self: Any, text: str | int) -> None: ...
def with_stars(self: Any, *text: str) -> None: ...
def with_unknown(self: Any, text: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("method", [with_nothing, with_dict, with_union, with_stars, with_unknown])
def test_a_signature_that_no_schema_can_say_is_refused_where_it_is_written(method: Callable[..., Any]) -> None:
    with pytest.raises(InvalidValue):
        action(method)


# The apps of quire


def restored(app: Any) -> Any:
    again = type(app)()
    again.restore(json.loads(json.dumps(app.save())))
    return again


def test_entries_keep_their_numbers_and_come_back_from_what_was_saved() -> None:
    todo = Todo()
    for text in ("买菜", "写代码", "call\nhome"):
        todo.add(text)
    todo.delete(2)
    todo.done(1)
    todo = restored(todo)
    todo.add("last")
    assert todo.content() == {1: "✓ 买菜", 3: "call home", 4: "last"}
    todo.done(1, done=False)
    assert todo.content()[1] == "买菜"


def test_a_pad_is_written_added_to_and_changed_where_a_passage_occurs_once() -> None:
    pad = Scratch()
    pad.open()
    pad.add("one")
    pad.add("two, one more")
    pad.change("two", "二")
    for old in ("one", "three", ""):
        with pytest.raises(InvalidValue):
            pad.change(old, "x")
    with pytest.raises(InvalidValue):
        pad.add("x" * 20_000)
    assert restored(pad).content() == pad.content() == "one\n二, one more"
