"""Forks: a copy of a context as it is now or was earlier. Both are independent, also if one is dropped."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import (
    Context,
    FileStorage,
    InvalidOperation,
    InvalidValue,
    Library,
    MemoryStorage,
    NoSuchContext,
    Permission,
    QuireError,
    SQLiteStorage,
    Storage,
    StorageFailure,
    migrate,
)
from quire.model.pages import Mark
from quire.testing import FaultyStorage
from quire.testing.case import contents
from tests.books import folder, leaf, refused
from tests.talks import calling, full_talk, new_talk, outline, said, stored, texts


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


@pytest.mark.parametrize("kind", ["name", "seq", "entry"])
def test_a_fork_is_the_context_as_it_was(kind: str, storage: Storage) -> None:
    talk = new_talk(storage)
    talk.user("one")
    leaf(talk.pages, "note", detail="then")
    seq = talk.checkpoint("here")
    then = outline(talk)
    entry = list(talk.history())[-1]
    talk.user("two")
    talk.conversation.delete(0)
    talk.pages.set_detail("mem-1", "later")
    now = stored(talk)
    to: Any = {"name": "here", "seq": seq, "entry": entry}[kind]
    fork = talk.fork("branch", at=to)
    assert outline(fork) == then
    assert said(fork, all=True) == [(0, "user", "one")]
    assert fork.pages.detail("mem-1") == "then"
    assert stored(talk) == now
    sound(talk, fork)


@pytest.mark.parametrize("to", range(2, 27))
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


def test_a_fork_of_an_early_state_has_no_later_message(storage: Storage) -> None:
    talk = new_talk(storage)
    talk.user("one")
    seq = talk.seq
    talk.user("secret")
    fork = talk.fork("branch", at=seq)
    assert said(fork, all=True) == [(0, "user", "one")]
    assert list(storage.scan("branch", "message", 1)) == []
    assert (fork.user("two"), talk.user("three")) == (1, 2)
    assert said(fork) == [(0, "user", "one"), (1, "user", "two")]
    assert texts(talk) == ["one", "secret", "three"]
    sound(talk, fork)


def test_a_fork_from_before_its_prompt_still_has_the_prompt_which_is_pinned(storage: Storage) -> None:
    talk = new_talk(storage)
    talk.user("one")
    seq = talk.seq
    talk.user("two")
    talk.system("You are careful.")
    talk.user("three")
    fork = talk.fork("branch", at=seq)
    assert texts(fork) == ["You are careful.", "one"]
    assert fork.conversation.mark_of(1) is Mark.REMOVED
    assert fork.user("on") == 3
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


@pytest.mark.parametrize("cleaning", ["parent", "fork", "both"])
def test_a_cleanup_on_one_side_destroys_nothing_on_the_other(cleaning: str, storage: Storage) -> None:
    talk = full_talk(storage)
    fork = talk.fork("branch")
    everything = said(talk, all=True)
    for name, one in (("parent", talk), ("fork", fork)):
        if cleaning in (name, "both"):
            cleaned = one.conversation.cleanup()
            assert cleaned.messages == 4
            assert len(one.messages(all=True)) == 16
        else:
            assert said(one, all=True) == everything
    sound(talk, fork)
    talk.user("on")
    fork.user("on")
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


def test_a_fork_of_a_fork_survives_both(storage: Storage) -> None:
    talk = full_talk(storage)
    child = talk.fork("child")
    child.user("in the child")
    grandchild = child.fork("grandchild")
    grandchild.user("in the grandchild")
    early = child.fork("early", at=child.seq - 1)
    expected, first = stored(grandchild), stored(early)
    assert texts(grandchild)[-2:] == ["in the child", "in the grandchild"]
    assert said(early) == said(talk)
    talk.conversation.cleanup()
    library = Library(storage)
    library.delete("child")
    library.delete("talk")
    assert (stored(grandchild), stored(early)) == (expected, first)
    assert list(library.list()) == ["early", "grandchild"]
    grandchild.conversation.cleanup()
    sound(grandchild, early)
    assert stored(early) == first


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


def test_a_page_changed_in_the_fork_alone_can_be_undone_there(storage: Storage) -> None:
    talk = full_talk(storage)
    fork = talk.fork("branch")
    fork.pages.set_detail("mem-1", "in the fork")
    changed = fork.seq
    fork.pages.hide("mem-1")
    with refused(fork.pages, InvalidOperation, "'mem-1'", "hide"):
        fork.undo(changed)
    fork.undo(fork.seq)
    fork.undo(changed)
    assert fork.pages.detail("mem-1") == "a note"


def test_the_actor_of_a_fork_is_who_made_it(storage: Storage) -> None:
    talk = new_talk(storage, actor="author")
    talk.pages.acting_as("someone else").fork("branch")
    (entry,) = new_talk(storage, "branch").history()
    assert entry.actor == "someone else"
    page = new_talk(storage, "branch").pages.get_page("mem-0")
    assert page.author == "author"


# Messages


def test_numbers_go_on_in_both_and_late_results_find_their_calls(storage: Storage) -> None:
    talk = full_talk(storage)
    fork = talk.fork("branch")
    assert fork.tool_result("never", "at last") == 20
    assert fork.tool_result("open", "now") == 21
    assert fork.pending_calls() == []
    assert fork.pages.detail("usr-12").endswith("Result of never: at last")
    assert [call.id for call in talk.pending_calls()] == ["open"]
    assert talk.tool_result("never", "another answer") == 20
    assert fork.assistant(None, calling("never")) == 22
    assert fork.tool_result("never", "a new one") == 23
    sound(talk, fork)


def test_a_call_made_since_is_unknown_to_a_fork_of_before(storage: Storage) -> None:
    talk = new_talk(storage)
    talk.user("one")
    seq = talk.seq
    talk.assistant(None, calling("a"))
    fork = talk.fork("branch", at=seq)
    with refused(fork.pages, InvalidValue, "'a'"):
        fork.tool_result("a", "1")
    fork.assistant(None, calling("a"))
    assert fork.tool_result("a", "1") == 2
    sound(talk, fork)


def test_indices_after_a_cleanup_are_those_of_the_parent(storage: Storage) -> None:
    talk = full_talk(storage)
    talk.conversation.cleanup()
    seq = talk.seq
    talk.user("later")
    fork = talk.fork("branch", at=seq)
    assert said(fork, all=True) == said(talk, all=True)[:-1]
    assert fork.user("on") == 16
    fork.conversation.delete(16)
    fork.conversation.cleanup()
    assert len(fork.messages(all=True)) == 16
    sound(talk, fork)


def test_open_batches_are_not_forked(storage: Storage) -> None:
    talk = new_talk(storage)
    talk.user("one")
    talk.conversation.batch_start()
    talk.user("in the batch")
    seq = talk.seq
    talk.conversation.batch_start()
    for name, at in (("now", None), ("then", seq)):
        fork = talk.fork(name, at=at)
        assert fork.conversation.mark_map().current_batch == 0
        assert texts(fork) == ["one", "in the batch"]
        fork.conversation.delete(1)
        fork.conversation.cleanup()
        sound(fork)
    assert talk.conversation.mark_map().batch_boundaries == [0, 1, 2]
    talk.conversation.batch_end(0)
    assert texts(talk) == ["one"]


def test_a_fork_inside_a_temporary_block_is_refused_and_the_block_goes_on(storage: Storage) -> None:
    talk = new_talk(storage)
    talk.user("one")
    with talk.temporary():
        talk.user("not for long")
        with refused(talk.pages, InvalidOperation, "uncommitted"):
            talk.fork("branch")
        talk.user("still here")
        assert texts(talk)[-1] == "still here"
    assert list(storage.contexts()) == ["talk"]
    fork = talk.fork("branch")
    assert texts(fork) == ["one"]
    sound(talk, fork)


# Names


@pytest.mark.parametrize("name", ["", " x", "x\n", "a\0b", "x" * 201, None, 5, b"branch", True, ["branch"], "\ud800"])
def test_a_name_that_cannot_be_one_is_refused(name: Any) -> None:
    talk = new_talk()
    with refused(talk.pages, InvalidValue, "name"):
        talk.fork(name)
    assert list(talk.pages.storage.contexts()) == ["talk"]


def test_a_name_in_use_is_refused_and_what_has_it_is_left_alone(storage: Storage) -> None:
    talk, other = new_talk(storage), new_talk(storage, "other")
    other.user("mine")
    before = stored(other)
    for name in ("other", "talk"):
        with refused(talk.pages, InvalidOperation, repr(name), "exists"):
            talk.fork(name)
    assert stored(other) == before


@pytest.mark.parametrize("at", [0, -1, 99, True, "nowhere", 2.0, b"here", ["here"]])
def test_a_moment_that_never_was_is_refused_and_nothing_is_made(at: Any, storage: Storage) -> None:
    talk = new_talk(storage)
    with refused(talk.pages, InvalidValue):
        talk.fork("branch", at=at)
    assert list(storage.contexts()) == ["talk"]


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
    with pytest.raises(NoSuchContext, match="nothing"):
        library.fork("nothing", "branch")
    with pytest.raises(InvalidOperation, match="exists"):
        library.fork("talk", "now")
    sound(*(library.open(name) for name in library.list()))


# Other storages, and storage errors


@pytest.mark.parametrize("target", ["memory", "file", "sqlite"])
def test_a_fork_moves_to_another_storage_without_its_parent(target: str, storage: Storage, tmp_path: Path) -> None:
    talk = full_talk(storage)
    fork = talk.fork("branch")
    talk.conversation.cleanup()
    fork.user("on")
    place = {"memory": "memory:", "file": f"file:{tmp_path / 'copy'}", "sqlite": f"sqlite:{tmp_path / 'copy.db'}"}
    copy = quire.open_storage(place[target])
    migrate(storage, copy, "branch")
    assert contents(copy, "branch") == contents(storage, "branch")
    moved = new_talk(copy, "branch")
    assert stored(moved) == stored(fork)
    sound(moved)
    copy.close()


def test_a_fork_read_as_a_document_is_the_same() -> None:
    talk = full_talk()
    fork = talk.fork("branch")
    document, other = json.loads(fork.pages.marshal()), json.loads(talk.pages.marshal())
    assert document["pages"] == other["pages"]
    assert document["segments"] == other["segments"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_acknowledgement_of_a_fork_is_resolved(when: Any, storage: Storage) -> None:
    full_talk(storage)
    faulty = FaultyStorage(storage)
    talk = new_talk(faulty)
    talk.pages.fork("counted")
    faulty.arm(0)
    talk.pages.fork("counted again")
    call = faulty.calls.index("fork") + 1
    faulty.arm(call, when)
    if when == "before":
        with pytest.raises(StorageFailure):
            talk.pages.fork("branch")
        assert "branch" not in list(storage.contexts())
        talk.pages.fork("branch")
    else:
        talk.pages.fork("branch")
    assert faulty.failed
    assert outline(new_talk(storage, "branch")) == outline(new_talk(storage))
    sound(talk, new_talk(storage, "branch"))


def test_two_that_make_a_fork_of_one_name_do_not_overwrite_each_other(storage: Storage) -> None:
    class Slow(FaultyStorage):
        """Lets another writer create the fork between the check and the write."""

        def fork(self, *arguments: Any) -> None:
            Library(storage).fork("other", "branch")
            super().fork(*arguments)

    new_talk(storage, "other").user("theirs")
    new_talk(storage)
    talk = new_talk(Slow(storage))
    with pytest.raises(QuireError, match="'branch'"):
        talk.pages.fork("branch")
    assert texts(new_talk(storage, "branch")) == ["theirs"]


def test_forking_costs_no_body_of_its_own(storage: Storage) -> None:
    talk = new_talk(storage)
    shelf = folder(talk.pages)
    for number in range(20):
        leaf(talk.pages, f"page {number}", shelf, "many words " * 200)
    fork = talk.fork("branch")
    fork.pages.set_detail("mem-5", "its own")
    assert talk.pages.detail("mem-5") == "many words " * 200
    assert fork.pages.detail("mem-6") == talk.pages.detail("mem-6")
    sound(talk, fork)
