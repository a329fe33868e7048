"""Purging: afterwards no byte of the page is left in the store, and everything else still works."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import (
    Conflict,
    Context,
    InvalidOperation,
    InvalidValue,
    MemoryStorage,
    NoSuchPage,
    Storage,
)
from quire.testing import FaultyStorage, InjectedFault
from tests.marks import long
from tests.stores import make
from tests.talks import calling, new_talk, said

SECRET = "qzwxyjkvbor"
中 = "鹦鹉螺号潜艇"


class Shelf:
    """A store with bytes that can be searched for the secret."""

    def __init__(self, backend: str, place: Path) -> None:
        self.place = place
        self.storage = make(backend, place / "store")

    def open(self, name: str = "c", **options: Any) -> Context:
        return new_talk(self.storage, name, **options)

    def holds(self, *words: str) -> bool:
        """Return whether the store contains the secret. An index omits the prefix that two words share."""
        wanted = [part.encode() for word in words or (SECRET, 中) for part in (word, word[2:])]
        files = [file.read_bytes() for file in self.place.rglob("*") if file.is_file()]
        return any(part in data for data in files for part in wanted)


@pytest.fixture(params=[*long("file"), "sqlite"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    return Shelf(request.param, tmp_path)


def told(talk: Context) -> str:
    """Return everything that a reader can get."""
    seen = [str(entry) for entry in talk.history()]
    for page in talk.pages.list_pages():
        seen += [str(page), talk.pages.detail(page.index) if hasattr(page, "form") else ""]
    return "\n".join([*seen, str(list(talk.messages(all=True))), talk.render(preview=True).openai().__repr__()])


def gone(shelf: Shelf, *talks: Context) -> None:
    """Check that nothing of the secret is left, and that everything else is complete."""
    assert not shelf.holds()
    for talk in talks:
        talk.refresh()
        assert SECRET not in told(talk)
        assert 中 not in told(talk)
        assert talk.find(SECRET) == []
        assert talk.find(中) == []
        assert talk.check() == []
        fresh = new_talk(shelf.storage, talk.name)
        assert fresh.check() == []
        assert fresh.find(SECRET) == []


def note(talk: Context, text: str = f"the key is {SECRET} 和{中}") -> str:
    return talk.pages.create_detail_page("a note", "", text, "mem-0")


# Purged data


def test_a_note_leaves_with_all_its_versions(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk)
    talk.pages.update_page(index, name=f"called {SECRET}", description=f"about {中}", meta={"k": SECRET})
    talk.pages.set_detail(index, f"another {SECRET}")
    talk.pages.set_detail(index, "harmless now")
    talk.pages.update_page(index, name="harmless", description="", meta={})
    talk.find("harmless")
    other = note(talk, "something else")
    assert shelf.holds()
    done = talk.pages.purge(index)
    assert (done.pages, done.texts, done.messages, done.contexts) == ((index,), 3, 0, ("c",))
    assert done.entries == 4
    assert done.scrubbed
    gone(shelf, talk)
    assert talk.pages.detail(other) == "something else"
    with pytest.raises(NoSuchPage):
        talk.pages.detail(index)


def test_an_exchange_leaves_with_its_messages_and_no_number_shifts(shelf: Shelf) -> None:
    talk = shelf.open()
    talk.user("first")
    talk.assistant(None, calling("a", SECRET))
    talk.tool_result("a", f"it is {SECRET}")
    talk.tool_result(SECRET, 中)
    talk.user("last")
    done = talk.pages.purge("usr-2")
    assert done.messages == 3
    gone(shelf, talk)
    assert [(index, content) for index, _, content in said(talk)] == [(0, "first"), (4, "last")]
    assert said(talk, all=True)[1:4] == [(index, "system", "[purged]") for index in (1, 2, 3)]
    assert [talk.conversation.is_modified(index) for index in range(5)] == [False, True, True, True, False]
    assert talk.user("and on") == 5
    talk.assistant(None, calling("a"))
    assert talk.tool_result("a", "again") == 7
    assert [index for index, _, _ in said(talk)] == [0, 4, 5, 6, 7]
    gone(shelf, talk)


def test_marked_removed_and_cold_pages_are_purged_by_the_index_they_had(shelf: Shelf) -> None:
    talk = shelf.open()
    for text in ("deleted", "replaced", "compressed", "also compressed", "cold"):
        talk.user(f"{text} {SECRET}")
    talk.conversation.delete(0)
    talk.conversation.replace(1, {"role": "user", "content": "better"})
    talk.conversation.compress([2, 3])
    talk.pages.archive("usr-5", cold=True)
    removed = note(talk)
    talk.pages.remove_page(removed)
    old = note(talk, f"moved {SECRET}")
    talk.pages.add_segment(quire.Segment(id="other", name="Other"))
    (moved,) = talk.pages.move_page(old, "other-0").values()
    talk.find("moved")
    done = talk.pages.purge("usr-1", "usr-2", "usr-3", "usr-4", "usr-5", removed, old)
    assert moved in done.pages
    gone(shelf, talk)
    assert [content for _, _, content in said(talk)] == ["better"]


def test_a_folder_leaves_with_everything_below_it(shelf: Shelf) -> None:
    talk = shelf.open()
    top = talk.pages.create_contents_page("top", "", "mem-0")
    inner = talk.pages.create_contents_page(f"inner {SECRET}", "", top)
    talk.pages.archive(talk.pages.create_detail_page("cold", "", SECRET, inner), cold=True)
    talk.pages.create_detail_page("leaf", SECRET, "", inner)
    stays = note(talk, "stays")
    assert len(talk.pages.purge(top).pages) == 4
    gone(shelf, talk)
    assert [page.index for page in talk.pages.children("mem-0")] == [stays]


# Data derived from purged pages


def folded(talk: Context, turns: int = 24) -> None:
    """Return a conversation with folded old turns; turn 3 has the secret."""
    for turn in range(turns):
        words = f"Order {SECRET}-7731 for {中}." if turn == 3 else f"Order {turn}."
        talk.user(f"{words} Please see to it. " + "word " * 12)
        talk.assistant(f"Done with {turn}. " + "more " * 12)
        talk.render()


@pytest.mark.parametrize("open_again", [False, True])
def test_chapters_above_it_are_called_and_summed_up_anew(shelf: Shelf, open_again: bool) -> None:
    talk = Context(shelf.open().pages, budget=700)
    folded(talk)
    lines = [page for page in talk.pages.list_pages("usr") if isinstance(page, quire.ContentsPage)]
    assert any(SECRET in page.description + page.name for page in lines)
    if open_again:
        talk.pages.expand("usr-7")
        talk.pages.move_page("usr-7", "usr-0")
        talk.render(max_tokens=2_000)
    talk.pages.purge("usr-7")
    gone(shelf, talk)
    for turn in range(8):
        talk.user(f"And {turn}? " + "word " * 12)
        talk.assistant("Yes. " + "more " * 12)
        talk.render()
    gone(shelf, talk)


@pytest.mark.parametrize("in_a_fork", [False, True])
def test_what_a_view_recalled_of_it_leaves_the_reply(shelf: Shelf, in_a_fork: bool) -> None:
    talk = shelf.open()
    index = note(talk, f"the key of the cellar is {SECRET} 和{中}")
    talk.pages.hide(index)
    talk.user("What is the key of the cellar?")
    assert any(part.kind == "recalled" for part in talk.render(recall=True).tail)
    reply = talk.assistant("It hangs at the door.")
    assert SECRET in str(talk.conversation.prelude(reply))
    talks = [talk, talk.fork("other")] if in_a_fork else [talk]
    talk.pages.purge(index)
    assert talk.conversation.prelude(reply) == []
    gone(shelf, *talks)


# Forks


def test_forks_that_share_it_lose_it_and_go_on(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk, f"old {SECRET}")
    talk.pages.set_detail(index, f"new {SECRET}")
    talk.user(f"said {中}")
    fork = talk.fork("fork")
    inner = fork.fork("inner")
    fork.pages.set_detail(index, f"edited in the fork {SECRET}")
    own = note(fork, "the fork's own")
    mine = note(talk, "the first one's own")  # with the same index
    assert own == mine
    done = inner.pages.purge(index, "usr-1")
    assert set(done.contexts) == {"c", "fork", "inner"}
    gone(shelf, talk, fork, inner)
    assert fork.pages.detail(own) == "the fork's own"
    assert talk.pages.detail(mine) == "the first one's own"
    for one in (talk, fork, inner):
        one.user("and on")
        assert one.check() == []


def test_a_fork_loses_what_was_removed_before_it(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk)
    talk.pages.remove_page(index)
    fork = talk.fork("fork")
    assert set(talk.pages.purge(index).contexts) == {"c", "fork"}
    gone(shelf, talk, fork)


def test_a_fork_goes_on_without_what_the_purged_folder_held_later(shelf: Shelf) -> None:
    talk = shelf.open()
    top = talk.pages.create_contents_page("top", "", "mem-0")
    talk.pages.create_detail_page("both", "", SECRET, top)
    fork = talk.fork("fork")
    talk.pages.create_detail_page("later", "", SECRET, top)
    talk.pages.purge(top)
    gone(shelf, talk, fork)


def test_a_folder_with_the_same_index_stays_in_a_fork_that_made_its_own(shelf: Shelf) -> None:
    talk = shelf.open()
    early = talk.fork("early")
    index = talk.pages.create_contents_page(f"about {SECRET}", "", "mem-0")
    for _ in range(3):
        talk.user("and on")
    late = talk.fork("late")
    assert early.pages.create_contents_page("its own", "", "mem-0") == index
    assert set(late.pages.purge(index).contexts) == {"c", "late"}
    gone(shelf, talk, early, late)
    assert early.pages.get_page(index).name == "its own"


# History


def test_history_goes_on_and_nothing_before_can_be_brought_back(shelf: Shelf) -> None:
    talk = shelf.open()
    talk.checkpoint("before")
    index = note(talk)
    other = note(talk, "other")
    talk.pages.purge(index)
    entry = list(talk.history())[-1]
    assert (entry.operation, entry.pages, entry.changes[0].before) == ("purge", (index,), None)
    after = talk.seq
    for undone in range(2, after + 1):
        with pytest.raises(InvalidOperation):
            talk.undo(undone)
    with pytest.raises(InvalidOperation):
        talk.rollback("before")
    talk.pages.update_page(other, name="changed")
    talk.undo(talk.seq)
    talk.pages.remove_page(other)
    talk.rollback(after)
    assert talk.pages.detail(other) == "other"
    fork = talk.fork("fork", at=after)
    gone(shelf, talk, fork)


# Refusals


def pinned(talk: Context) -> Sequence[str]:
    talk.system("Be careful.")
    return ["sys-1"]


def waiting(talk: Context) -> Sequence[str]:
    talk.assistant(None, calling("a"))
    return ["usr-1"]


def batch(talk: Context) -> Sequence[str]:
    talk.conversation.batch_start()
    return [note(talk)]


@pytest.mark.parametrize("prepare", [pinned, waiting, batch, lambda _: ["mem-0"]])
def test_what_must_not_be_touched_is_refused(prepare: Callable[[Context], Sequence[str]]) -> None:
    talk = new_talk()
    indices = prepare(talk)
    seq = talk.seq
    with pytest.raises(InvalidOperation):
        talk.pages.purge(*indices)
    assert talk.seq == seq
    assert talk.check() == []


def test_a_page_that_never_was_is_named_and_a_block_must_be_left_first() -> None:
    talk = new_talk()
    with pytest.raises(NoSuchPage):
        talk.pages.purge("mem-99")
    with pytest.raises(InvalidValue):
        talk.pages.purge()
    index = note(talk)
    with talk.temporary(), pytest.raises(InvalidOperation):
        talk.pages.purge(index)
    assert talk.pages.purge(index).pages == (index,)


def test_a_page_that_is_pinned_in_a_fork_stays_everywhere(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk)
    fork = talk.fork("fork")
    fork.pages.pin(index)
    with pytest.raises(InvalidOperation):
        talk.pages.purge(index)
    assert SECRET in talk.pages.detail(index)


# Failures


def test_a_failure_anywhere_is_made_good_by_the_same_call(request: pytest.FixtureRequest) -> None:
    def prepared(storage: Storage) -> tuple[Context, str]:
        talk = new_talk(storage, "c")
        index = note(talk)
        talk.user("hello")
        talk.fork("fork")
        return talk, index

    counted = FaultyStorage(MemoryStorage())
    talk, index = prepared(counted)
    counted.arm(0)
    talk.pages.purge(index)
    calls = len(counted.calls)
    for when in ("before", "after"):
        for fail_at in range(1, calls + 1, 1 if request.config.getoption("--long") else 12):
            faulty = FaultyStorage(MemoryStorage())
            talk, index = prepared(faulty)
            faulty.arm(fail_at, when)
            try:
                talk.pages.purge(index)
            except (InjectedFault, quire.StorageFailure, Conflict):
                assert talk.check() == []
            faulty.heal()
            talk.refresh()
            talk.pages.purge(index)
            for name in ("c", "fork"):
                again = new_talk(faulty.inner, name)
                assert again.check() == []
                assert SECRET not in told(again)
