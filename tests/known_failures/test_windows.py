"""What windows do with input that is no arguments."""

import pytest

import quire
from quire import InvalidValue
from quire.windows.apps import Todo
from tests.known_failures import until_step


@until_step(5, "arguments that are no mapping raise an error of Python", TypeError)
@pytest.mark.parametrize("arguments", ["text=milk", 5, ["milk"]])
def test_arguments_that_are_no_mapping_are_refused_by_name(arguments: object) -> None:
    ctx = quire.open("memory:")
    ctx.windows.register(Todo)
    ctx.windows.open("todo")
    seq = ctx.seq
    with pytest.raises(InvalidValue):
        ctx.windows.act("todo_1", "add", arguments)  # type: ignore[arg-type]
    assert ctx.seq == seq
