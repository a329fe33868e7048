"""The todo list and the scratch pad."""

import json

import pytest

from quire import InvalidValue
from quire.windows.app import app_actions
from quire.windows.apps import Scratch, Todo


def test_entries_keep_their_numbers() -> None:
    todo = Todo()
    for text in ("买菜", "写代码", "call\nhome"):
        todo.add(text)
    todo.delete(2)
    todo.done(1)
    todo.add("last")
    assert todo.content() == {1: "✓ 买菜", 3: "call home", 4: "last"}
    todo.done(1, done=False)
    assert todo.content()[1] == "买菜"


def test_an_entry_that_is_not_there_is_named_with_those_that_are() -> None:
    todo = Todo()
    todo.add("买菜")
    for act in (todo.delete, todo.done):
        with pytest.raises(InvalidValue, match=r"no entry 2.*: 1"):
            act(2)
    for text in ("", " \n ", "x" * 501):
        with pytest.raises(InvalidValue, match="1 to 500 characters"):
            todo.add(text)


def test_a_full_list_says_so() -> None:
    todo = Todo()
    for n in range(500):
        todo.add(str(n))
    with pytest.raises(InvalidValue, match="500 entries"):
        todo.add("one more")


def test_a_list_comes_back_from_what_it_saved() -> None:
    todo = Todo()
    todo.add("买菜")
    todo.add("写代码")
    todo.done(2)
    todo.delete(1)
    again = Todo()
    again.restore(json.loads(json.dumps(todo.save())))
    again.add("new")
    assert again.content() == {2: "✓ 写代码", 3: "new"}


def test_the_actions_read_as_documented() -> None:
    assert [f"{a.name}({a.params})" for a in app_actions(Todo)] == [
        "add(text:string)",
        "done(index:int, done:bool?)",
        "delete(index:int)",
        "close(summary:string?)",
    ]


def test_the_pad_is_written_added_to_and_changed() -> None:
    pad = Scratch()
    pad.open()
    pad.add("one")
    pad.add("two, one more")
    pad.change("two", "二")
    assert pad.content() == "one\n二, one more"
    again = Scratch()
    again.restore(json.loads(json.dumps(pad.save())))
    assert again.content() == pad.content()


@pytest.mark.parametrize(("old", "times"), [("one", 2), ("three", 0), ("", 0)])
def test_a_passage_must_occur_once(old: str, times: int) -> None:
    pad = Scratch()
    pad.write("one and one")
    with pytest.raises(InvalidValue, match=f"occurs {times} times"):
        pad.change(old, "x")


def test_a_full_pad_keeps_what_it_has() -> None:
    pad = Scratch()
    pad.write("kept")
    with pytest.raises(InvalidValue, match="holds 20,000"):
        pad.add("x" * 20_000)
    assert pad.content() == "kept"
