"""Forks: a copy of a context as it is now or was earlier. Both are independent, also if one is dropped."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quire import (
    Context,
    FileStorage,
    InvalidOperation,
    InvalidValue,
    Library,
    MemoryStorage,
    NoSuchContext,
    Permission,
    SQLiteStorage,
    Storage,
)
from tests.books import refused
from tests.marks import long
from tests.talks import full_talk, new_talk, outline, said, stored, texts


@pytest.fixture(params=["memory", "file", "sqlite"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    makers: dict[str, Callable[[], Storage]] = {
        "memory": MemoryStorage,
        "file": lambda: FileStorage(tmp_path / "store"),
        "sqlite": lambda: SQLiteStorage(tmp_path / "store.db"),
    }
    found = makers[request.param]()
    yield found
    found.close()


def without_batches(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"batches": [0]}


def sound(*talks: Context) -> None:
    for talk in talks:
        assert talk.check() == []
        assert new_talk(talk.pages.storage, talk.name).check() == []


# Current and earlier states


def test_a_fork_is_the_context_as_it_is(storage: Storage) -> None:
    talk = full_talk(storage)
    before = stored(talk)
    fork = talk.fork("branch")
    assert (fork.name, fork.budget) == ("branch", talk.budget)
    assert outline(fork) == outline(talk)
    assert said(fork) == said(talk)
    assert said(fork, all=True) == said(talk, all=True)
    assert fork.pending_calls() == talk.pending_calls()
    assert [fork.conversation.mark_of(index) for index in range(20)] == [
        talk.conversation.mark_of(index) for index in range(20)
    ]
    assert stored(talk) == before
    sound(talk, fork)


@pytest.mark.parametrize("to", [2, 9, 14, 20, 25, *long(*range(3, 27, 2))])
def test_every_earlier_state_can_be_forked(to: int) -> None:
    talk = full_talk()
    fork = talk.fork("branch", at=to)
    rolled = full_talk()
    rolled.rollback(to)
    assert outline(fork) == without_batches(outline(rolled))
    assert said(fork) == said(rolled)
    assert len(fork.messages(all=True)) <= len(rolled.messages(all=True))
    assert fork.user("on") == len(fork.messages(all=True)) - 1
    sound(talk, fork)


def test_permissions_of_today_hold_in_a_fork_of_yesterday(storage: Storage) -> None:
    talk = new_talk(storage)
    seq = talk.seq
    talk.pages.set_segment_permission("mem", Permission.PRIVATE)
    fork = talk.fork("branch", at=seq)
    assert fork.pages.get_segment("mem").permission is Permission.PRIVATE


# Independence


def test_neither_sees_what_the_other_does(storage: Storage) -> None:
    talk = full_talk(storage)
    fork = talk.fork("branch")
    before = outline(fork)
    talk.tool_result("open", "theirs")
    talk.user("in the parent")
    talk.pages.set_detail("mem-1", "in the parent")
    talk.conversation.delete(1)
    talk.pages.remove_segment("win")
    assert outline(fork) == before
    assert outline(new_talk(storage, "branch")) == before
    now = outline(talk)
    fork.tool_result("open", "ours")
    fork.user("in the fork")
    fork.pages.remove_page("mem-1")
    fork.conversation.compress([1, 2])
    fork.undo(fork.seq)
    assert outline(talk) == now
    assert outline(new_talk(storage)) == now
    assert [message.text for message in talk.messages(all=True)][-2:] == ["theirs", "in the parent"]
    assert [message.text for message in fork.messages(all=True)][-2:] == ["ours", "in the fork"]
    sound(talk, fork)


@pytest.mark.parametrize("gone", ["parent", "fork"])
def test_each_survives_the_other(gone: str, storage: Storage) -> None:
    talk = full_talk(storage)
    fork = talk.fork("branch")
    fork.user("in the fork")
    name, left = ("talk", fork) if gone == "parent" else ("branch", talk)
    before = stored(left)
    library = Library(storage)
    library.delete(name)
    assert list(library.list()) == [left.name]
    assert stored(left) == before
    assert stored(new_talk(storage, left.name)) == before
    left.user("on")
    left.conversation.cleanup()
    sound(left)
    again = new_talk(storage, name)
    again.user("made anew")
    assert texts(again) == ["made anew"]
    sound(left, again)


# Journal of a fork


def test_the_journal_of_a_fork_starts_with_the_fork(storage: Storage) -> None:
    talk = full_talk(storage)
    talk.checkpoint("here")
    fork = talk.fork("branch")
    (entry,) = fork.history()
    assert (entry.operation, entry.actor, entry.seq) == ("fork", "developer", talk.seq + 1)
    assert (entry.seq, fork.pages.checkpoints()) == (fork.seq, {})
    before: tuple[Any, ...] = (1, talk.seq, fork.seq)
    for seq in before:
        with refused(fork.pages, InvalidOperation, str(seq)):
            fork.undo(seq)
    for to in (1, talk.seq, "here"):
        with refused(fork.pages, InvalidValue):
            fork.rollback(to)
    fork.user("on")
    fork.undo(fork.seq)
    fork.pages.remove_page("mem-1")
    fork.rollback(entry)
    assert outline(fork) == outline(talk)
    assert [found.seq for found in fork.history(after=entry.seq)] == list(range(entry.seq + 1, fork.seq + 1))
    sound(fork)


# Messages


def test_a_fork_inside_a_temporary_block_is_refused_and_the_block_goes_on(storage: Storage) -> None:
    talk = new_talk(storage)
    talk.user("one")
    with talk.temporary():
        talk.user("not for long")
        with refused(talk.pages, InvalidOperation):
            talk.fork("branch")
        library = Library(talk.pages.storage)
        assert [list(library.list(after)) for after in ("", "tal", "talk")] == [["talk"], ["talk"], []]
        talk.user("still here")
        assert texts(talk)[-1] == "still here"
    assert list(Library(storage).list()) == ["talk"]
    fork = talk.fork("branch")
    assert texts(fork) == ["one"]
    sound(talk, fork)


# Names


@pytest.mark.parametrize("name", ["", " x", "x\n", "a\0b", "x" * 201, None, 5, b"branch", True, ["branch"], "\ud800"])
def test_a_name_that_cannot_be_one_is_refused(name: Any) -> None:
    talk = new_talk()
    with refused(talk.pages, InvalidValue):
        talk.fork(name)
    assert list(Library(talk.pages.storage).list()) == ["talk"]


@pytest.mark.parametrize("at", [0, -1, 99, True, "nowhere", 2.0, b"here", ["here"]])
def test_a_moment_that_never_was_is_refused_and_nothing_is_made(at: Any, storage: Storage) -> None:
    talk = new_talk(storage)
    with refused(talk.pages, InvalidValue):
        talk.fork("branch", at=at)
    assert list(Library(storage).list()) == ["talk"]


def test_nothing_is_forked_from_before_a_cleanup() -> None:
    talk = full_talk()
    talk.checkpoint("before")
    talk.conversation.cleanup()
    with refused(talk.pages, InvalidOperation):
        talk.fork("branch", at="before")
    with refused(talk.pages, InvalidOperation):
        talk.fork("branch", at=talk.seq - 1)


def test_a_library_forks_by_name(storage: Storage) -> None:
    talk = full_talk(storage)
    library = Library(storage)
    seq = talk.checkpoint("here")
    talk.user("later")
    library.fork("talk", "now")
    library.fork("talk", "then", "here")
    library.fork("talk", "also then", at=seq)
    assert list(library.list()) == ["also then", "now", "talk", "then"]
    assert outline(new_talk(storage, "now")) == outline(talk)
    assert texts(library.open("then")) == texts(library.open("also then")) == texts(talk)[:-1]
    with pytest.raises(NoSuchContext):
        library.fork("nothing", "branch")
    with pytest.raises(InvalidOperation):
        library.fork("talk", "now")
    sound(*(library.open(name) for name in library.list()))
