"""Purging: afterwards no byte of the page is left in the store, and everything else still works."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import (
    Conflict,
    Context,
    Corrupt,
    InvalidOperation,
    InvalidValue,
    MemoryStorage,
    NoSuchPage,
    SQLiteStorage,
    Storage,
)
from quire.storage.base import FAMILIES, MESSAGE, VECTOR
from quire.testing import FaultyStorage, InjectedFault
from tests.stores import BACKENDS, make
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
        return any(part in data for data in self._bytes() for part in wanted)

    def _bytes(self) -> list[bytes]:
        files = [file.read_bytes() for file in self.place.rglob("*") if file.is_file()]
        storage = self.storage
        if not isinstance(storage, MemoryStorage):
            return files
        return [
            record.value for name in storage.contexts() for family in FAMILIES for record in storage.scan(name, family)
        ] + [head.value for name in storage.contexts() if (head := storage.head(name))]


@pytest.fixture(params=BACKENDS)
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
    with pytest.raises(NoSuchPage, match="It was purged"):
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


def test_half_of_an_exchange_that_was_replaced_leaves_too(shelf: Shelf) -> None:
    talk = shelf.open()
    talk.assistant(None, calling("a"))
    talk.tool_result("a", f"first {SECRET}")
    talk.user("on")
    talk.conversation.replace(1, {"role": "tool", "tool_call_id": "a", "content": "second"})
    assert talk.pages.purge("usr-1").messages == 3
    gone(shelf, talk)


# Data derived from purged pages


def folded(talk: Context, turns: int = 40) -> None:
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
    for turn in range(24):
        talk.user(f"And {turn}? " + "word " * 12)
        talk.assistant("Yes. " + "more " * 12)
        talk.render()
    gone(shelf, talk)
    hidden = [page for page in talk.pages.children("usr-0") if page.visibility is quire.Visibility.HIDDEN]
    assert len(hidden) > 2
    assert open_again or all(page.description for page in hidden)


def test_a_summary_that_stands_for_it_is_made_anew_from_the_rest(shelf: Shelf) -> None:
    talk = shelf.open()
    talk.user(f"the first says {SECRET}")
    talk.assistant("the second says teapot")
    talk.conversation.compress([0, 1])
    (summary,) = [page for page in talk.pages.list_pages("usr") if page.name.startswith("Summary")]
    assert SECRET in talk.pages.detail(summary.index)
    talk.pages.purge("usr-1")
    gone(shelf, talk)
    assert "teapot" in talk.pages.detail(summary.index)
    talk.pages.purge("usr-2")
    assert not shelf.holds("teapot")
    assert talk.check() == []


def test_what_an_agent_was_shown_and_changed_leaves_too(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk)
    talk.user("hello")
    talk.render()
    talk.agent.update_page(index, name=f"agent {SECRET}")
    talk.agent.hide_details(index)
    talk.agent.expand_details(index)
    talk.pages.purge(index)
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


def test_vectors_leave_too(shelf: Shelf) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        return [[float(SECRET in text), 0.5, float(len(text) % 7)] for text in texts]

    talk = shelf.open(embedder=embed)
    index = note(talk)
    stays = note(talk, "stays")
    talk.find("key")
    before = {record.key for record in shelf.storage.scan("c", VECTOR)}
    talk.pages.purge(index)
    assert len(before - {record.key for record in shelf.storage.scan("c", VECTOR)}) == 1
    found = [hit.index for hit in talk.find("stays")]
    assert found[0] == stays
    assert index not in found
    gone(shelf, shelf.open())


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


@pytest.mark.parametrize("how", ["removed", "rolled back", "moved"])
def test_a_page_that_is_below_the_purged_folder_only_in_a_fork_stays_sound(shelf: Shelf, how: str) -> None:
    talk = shelf.open()
    folder = talk.pages.create_contents_page("folder", "", "mem-0")
    before = talk.seq
    index = talk.pages.create_detail_page("leaf", "", "a text that is not purged here", folder)
    fork = talk.fork("fork")
    if how == "removed":
        talk.pages.remove_page(index)
    elif how == "moved":
        talk.pages.move_page(index, "mem-0")
    else:
        talk.pages.hide(index)
        talk.rollback(before)
    assert set(talk.pages.purge(folder).contexts) == {"c", "fork"}
    fork.refresh()
    assert (talk.check(), fork.check()) == ([], [])
    assert fork.find("purged") == []
    if how == "moved":
        assert talk.pages.detail(index) == "a text that is not purged here"


def test_messages_that_are_below_the_purged_chapter_only_in_a_fork_stay(shelf: Shelf) -> None:
    talk = shelf.open()
    talk.budget = 700
    while not any(entry.operation == "fold" for entry in talk.history()):
        talk.user("question " + "word " * 40)
        talk.render()
        talk.assistant("answer")
    fold = next(entry for entry in talk.history() if entry.operation == "fold")
    chapters = [page.index for page in talk.pages.list_pages("usr") if page.created_seq == fold.seq]
    fork = talk.fork("fork")
    talk.undo(fold)
    messages = talk.messages()
    talk.pages.purge(*chapters)
    fork.refresh()
    assert (talk.check(), fork.check()) == ([], [])
    assert talk.messages() == messages
    assert len(fork.messages()) < len(messages)


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_a_chapter_that_leaves_takes_its_words_out_of_the_chapters_above(how: str) -> None:
    talk = quire.open("memory:", budget=400)
    for number in range(16):
        talk.user(f"code ZQ-{number:04} " + "word " * 20)
        talk.render()
        talk.assistant("answer")
    chapters = [page for page in talk.pages.list_pages("usr") if isinstance(page, quire.ContentsPage)]
    inner = next(page for page in chapters if page.parent not in (None, "usr-0"))
    outer = str(inner.parent)

    def words() -> str:
        page = talk.pages.get_page(outer)
        return f"{page.name} {page.description}"

    assert "ZQ-0000" in words()  # the first message is in the first inner chapter
    if how == "moved":
        talk.pages.move_page(inner.index, "mem-0")
    else:
        talk.pages.remove_page(inner.index)
    assert "ZQ-0000" not in words()
    assert talk.check() == []
    talk.undo(talk.seq)
    assert "ZQ-0000" in words()


def test_a_fork_can_be_left_as_it_is(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk)
    fork = talk.fork("fork")
    assert talk.pages.purge(index, forks=False).contexts == ("c",)
    assert SECRET in fork.pages.detail(index)
    assert talk.find(SECRET) == []
    assert fork.pages.purge(index).scrubbed
    gone(shelf, talk, fork)


def test_an_error_names_the_context_in_which_the_page_is_pinned() -> None:
    talk = new_talk(MemoryStorage(), "c")
    index = note(talk)
    talk.pages.pin(index)
    fork = talk.fork("wi")
    talk.pages.unpin(index)
    with pytest.raises(InvalidOperation) as there:
        talk.pages.purge(index)
    assert [(hint.call, hint.page, hint.context) for hint in there.value.hints] == [("unpin", index, "wi")]
    assert f"unpin({index!r}) in context 'wi' first." in str(there.value)
    talk.pages.pin(index)
    with pytest.raises(InvalidOperation) as here:  # that of the caller is named before that of a fork
        talk.pages.purge(index)
    assert "In context 'c'" in str(here.value)
    assert [hint.context for hint in here.value.hints] == [""]
    with pytest.raises(InvalidOperation, match=r"In context 'c': .* is the root of its segment"):
        talk.pages.purge("usr-0")
    assert SECRET in fork.pages.detail(index)


def test_an_origin_that_was_dropped_leaves_nothing_behind(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk)
    talk.pages.set_detail(index, f"another {SECRET}")  # the earlier text is only in the history of this one
    talk.user(f"said {中}")
    fork, other = talk.fork("fork"), talk.fork("other")
    shelf.storage.drop("c")
    assert set(fork.pages.purge(index, "usr-1").contexts) == {"fork", "other"}
    gone(shelf, fork, other)


def test_a_page_that_was_removed_before_the_fork_leaves_both(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk)
    talk.pages.remove_page(index)
    fork = talk.fork("fork")
    talk.pages.purge(index)
    gone(shelf, talk, fork)


def test_pages_that_only_look_alike_stay(shelf: Shelf) -> None:
    talk = shelf.open()
    forks = [talk.fork(name) for name in ("one", "two")]
    index = {note(fork, f"text of {fork.name}") for fork in forks}
    stranger = shelf.open("stranger")
    index.add(note(stranger, "text of one"))
    (same,) = index
    assert forks[0].pages.purge(same).contexts == ("one",)
    assert forks[1].pages.detail(same) == "text of two"
    assert stranger.pages.detail(same) == "text of one"


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
        with pytest.raises(InvalidOperation, match="a purge"):
            talk.undo(undone)
    with pytest.raises(InvalidOperation, match="nothing before entry"):
        talk.rollback("before")
    talk.pages.update_page(other, name="changed")
    talk.undo(talk.seq)
    talk.pages.remove_page(other)
    talk.rollback(after)
    assert talk.pages.detail(other) == "other"
    fork = talk.fork("fork", at=after)
    gone(shelf, talk, fork)


def test_a_purge_done_again_says_that_nothing_was_left(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk)
    talk.user("on")
    done = talk.pages.purge(index, "usr-1")
    again = talk.pages.purge(index, "usr-1")
    assert (again.pages, again.contexts, again.texts, again.messages, again.entries) == ((), (), 0, 0, 0)
    assert (again.seq, talk.seq) == (done.seq, done.seq)
    gone(shelf, talk)


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


@pytest.mark.parametrize(
    ("prepare", "match"),
    [
        (pinned, "it is pinned"),
        (waiting, "waits for the results"),
        (batch, "Batch 1 is open"),
        (lambda _: ["mem-0"], "it is the root"),
    ],
)
def test_what_must_not_be_touched_is_refused(prepare: Callable[[Context], Sequence[str]], match: str) -> None:
    talk = new_talk()
    indices = prepare(talk)
    seq = talk.seq
    with pytest.raises(InvalidOperation, match=match):
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
    with talk.temporary(), pytest.raises(InvalidOperation, match="temporary block"):
        talk.pages.purge(index)
    assert talk.pages.purge(index).pages == (index,)


@pytest.mark.parametrize(
    "bad", [None, 3, True, "", "mem-01", "MEM-1", "mem-1\n", b"mem-1", ["mem-1"], "x" * 9_999, object()]
)
def test_whatever_is_given_for_an_index_is_refused_and_changes_nothing(bad: Any) -> None:
    talk = new_talk()
    index = note(talk)
    seq = talk.seq
    with pytest.raises(quire.QuireError):
        talk.pages.purge(index, bad)
    with pytest.raises(InvalidValue, match="forks"):
        talk.pages.purge(index, forks=bad if not isinstance(bad, bool) else 1)  # type: ignore[arg-type]
    assert (talk.seq, talk.check()) == (seq, [])


def test_a_page_that_is_pinned_in_a_fork_stays_everywhere(shelf: Shelf) -> None:
    talk = shelf.open()
    index = note(talk)
    fork = talk.fork("fork")
    fork.pages.pin(index)
    with pytest.raises(InvalidOperation, match=r"In context 'fork'.*pinned"):
        talk.pages.purge(index)
    assert SECRET in talk.pages.detail(index)


def test_what_a_temporary_block_said_leaves_too(shelf: Shelf) -> None:
    talk = shelf.open()
    with talk.temporary():
        talk.user(f"between us: {SECRET}")
    (page,) = [page.index for page in talk.pages.list_pages("usr") if page.index != "usr-0"]
    talk.pages.purge(page)
    gone(shelf, talk)


# Failures


def test_a_failure_anywhere_is_made_good_by_the_same_call() -> None:
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
        for fail_at in range(1, calls + 1):
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


def test_bytes_that_others_keep_from_being_cleared_are_told(tmp_path: Path) -> None:
    shelf = Shelf("sqlite", tmp_path)
    shelf.storage.close()
    shelf.storage = SQLiteStorage(tmp_path / "store", busy_seconds=0.05)
    talk = shelf.open()
    index = note(talk)
    reader = SQLiteStorage(tmp_path / "store")
    with reader.snapshot("c"):
        done = talk.pages.purge(index)
        assert not done.scrubbed
        assert "perhaps readers" in done.problem
    talk.pages.scrub()
    gone(shelf, talk)
    reader.close()


def test_a_damaged_context_does_not_prevent_the_purge_of_another(tmp_path: Path) -> None:
    shelf = Shelf("sqlite", tmp_path)
    talk = shelf.open()
    index = note(talk)
    new_talk(shelf.storage, "other").user("hello")
    assert len(list(shelf.storage.scan("other", MESSAGE))) == 1  # its head is not in the log from now on
    shelf.storage._db.execute("UPDATE context SET head = x'00' WHERE name = 'other'")  # type: ignore[attr-defined]
    done = talk.pages.purge(index)
    assert not done.scrubbed
    assert "cannot be read, so they may be forks: 'other'." in done.problem
    gone(shelf, talk)


def test_a_damaged_fork_is_named_and_nothing_is_purged(tmp_path: Path) -> None:
    shelf = Shelf("sqlite", tmp_path)
    talk = shelf.open()
    index = note(talk)
    talk.fork("fork").user("more")
    sql = "UPDATE page SET value = x'00' WHERE id = (SELECT max(id) FROM page)"
    shelf.storage._db.execute(sql)  # type: ignore[attr-defined]
    before = talk.seq
    with pytest.raises(Corrupt, match=r"Context 'fork' has the same origin, and it is damaged: page record \d+"):
        talk.pages.purge(index)
    assert new_talk(shelf.storage, "c").seq == before
    assert talk.pages.purge(index, forks=False).pages == (index,)
