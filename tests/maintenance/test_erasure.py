"""Erasure: no byte of a removed context is left in the store, and the report names everything that was not reached."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Thread
from time import sleep

import apsw
import pytest

import quire
from quire import Busy, Conflict, Context, InvalidOperation, InvalidValue, Library, NoSuchContext
from quire.testing import FaultyStorage, InjectedFault
from tests.maintenance.raw_stores import CHINESE, LATIN, SECRET, RawStore
from tests.marks import servers
from tests.seeds import SEED
from tests.system.test_purge import Shelf
from tests.system.test_purge_anywhere import written
from tests.talks import calling, stored
from tests.whole_values import whole_repr
from tests.windows.sample_apps import Counter


@pytest.fixture(params=["sqlite", "file", *servers("s3", "postgres")])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RawStore]:
    made = RawStore(request.param, tmp_path)
    yield made
    made.storage.close()


@pytest.fixture(params=["sqlite", "file"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RawStore]:
    made = RawStore(request.param, tmp_path)
    yield made
    made.storage.close()


class Letters:
    name = "letters"

    def __call__(self, texts: list[str]) -> list[list[float]]:
        return [[1.0 + text.count(letter) for letter in "abcde"] for text in texts]


def fill(library: Library, name: str, secret: str = SECRET) -> Context:
    """Return a context with the secret in every place that can hold it."""
    ctx = library.create(name, budget=1_100, embedder=Letters())
    noise = Random(name).randbytes(3_000).hex()
    ctx.windows.register(Counter)
    ctx.windows.open("counter")
    ctx.system(f"Never say {secret}.")
    index = ctx.pages.create_detail_page(f"note {secret}", f"about {secret}", f"old {secret} {noise}", "mem-0")
    ctx.pages.set_detail(index, f"new {secret}")
    ctx.agent.create_detail_page("plan", "", f"my {secret}", "mem-0")
    for number in range(12):
        ctx.user(f"Question {number} about {secret}: " + "word " * 60)
        view = ctx.render(recall=True)
        ctx.assistant("Answer.", calling(f"call-{number}") if number % 7 == 0 else None, view=view)
        for call in ctx.pending_calls():
            ctx.tool_result(call.id, f"result {secret}")
    ctx.conversation.delete(3)
    ctx.conversation.compress([8, 9], f"They spoke about {secret}.")
    ctx.checkpoint(f"at {secret}")
    ctx.pages.remove_page(index)
    ctx.find(secret)
    return ctx


def test_an_erased_context_and_its_forks_leave_no_byte(store: RawStore) -> None:
    library = store.library
    other = fill(library, "other", "harmless")
    before = stored(other)
    ctx = fill(library, SECRET)
    fork = ctx.fork("fork")
    fork.user(f"in the fork {SECRET}")
    fork.find(LATIN)
    fork.fork(f"second {SECRET}").user("on")
    library.delete("fork")  # the fork of a fork is found without it
    ctx.fork("third").user("on")
    store.analyze()
    assert store.count(LATIN) > 50
    assert store.count(CHINESE) > 50
    done = library.erase(SECRET)
    assert set(done.forks) == {f"second {SECRET}", "third"}
    assert done.contexts == (SECRET, *done.forks)
    assert sum(done.reached.values()) > 50
    assert [left.code for left in done.remains if left.code != "server"] == ["copies"]
    assert done.scrubbed is (store.kind != "postgres")
    store.finish_on_server()
    assert store.count() == 0
    assert list(library.list()) == ["other"]
    other.refresh()
    assert stored(other) == before
    assert other.check() == []
    assert other.find("harmless")
    assert quire.doctor(store.storage).symptoms == ()
    with pytest.raises(NoSuchContext):
        ctx.user("still here?")
    with pytest.raises(NoSuchContext):
        library.erase(SECRET)


@pytest.mark.servers
def test_old_versions_in_a_bucket_are_reported(tmp_path: Path) -> None:
    library = RawStore("s3-versions", tmp_path).library
    library.create("c").user(f"slip {SECRET}")
    done = library.erase("c")
    assert not done.scrubbed
    assert "server" in [left.code for left in done.remains]


def test_forks_are_not_removed_without_being_asked(local: RawStore) -> None:
    library = local.library
    library.create("c").user("hello")
    library.fork("c", "f")
    library.fork("f", "g")
    with pytest.raises(InvalidOperation):
        library.erase("c", forks=False)
    assert list(library.list()) == ["c", "f", "g"]
    done = library.erase("f")
    assert (done.contexts, done.forks) == (("f", "g"), ("g",))
    (related,) = [left for left in done.remains if left.code == "related"]
    assert "'c'" in related.text
    assert library.erase("c", forks=False).contexts == ("c",)


def test_an_erasure_that_was_interrupted_is_completed(local: RawStore) -> None:
    fill(local.library, "c").fork("f").fork("g")
    interrupted = 0
    for fail_at in range(1, 400, 9):
        try:
            Library(FaultyStorage(local.storage, fail_at)).erase("c")
            break
        except InjectedFault:
            interrupted += 1
        if not local.library.exists("c"):  # only its bytes may be left
            break
    assert interrupted > 2
    assert list(local.library.list()) == []
    local.library.scrub()
    assert local.count() == 0


def test_forks_that_are_made_meanwhile_are_erased_too(local: RawStore) -> None:
    ctx = local.library.create("c")
    ctx.user(f"slip {SECRET}")
    made = list[str]()

    def fork_on() -> None:
        storage = local.open()
        library = Library(storage)
        source = "c"
        with suppress(NoSuchContext, Conflict):  # it was erased
            for number in range(10_000):
                library.fork(source, f"f{number}")
                made.append(f"f{number}")
                source = f"f{number}" if number % 3 else "c"
        storage.close()

    thread = Thread(target=fork_on)
    thread.start()
    while len(made) < 5:
        sleep(0.001)
    removed = local.library.erase("c").contexts
    thread.join()
    assert set(removed) == {"c", *made}
    assert list(local.library.list()) == []
    assert local.count() == 0


@pytest.mark.parametrize("backend", ["file", "sqlite"])
def test_whatever_was_done_before(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for step in range(60 if request.config.getoption("--long") else 1):
        place = tmp_path / str(step)
        place.mkdir()
        try:
            erase_one_by_one(Shelf(backend, place), Random(SEED + step))
        except BaseException as error:
            error.add_note(f"QUIRE_SEED={SEED + step}")
            raise


def erase_one_by_one(shelf: Shelf, random: Random) -> None:
    """Remove a context and its forks in any order and way; at the end nothing is left."""
    books, _ = written(shelf, random)
    assert shelf.holds(LATIN)
    library = Library(shelf.storage)
    for book in random.sample(books, len(books)):
        if library.exists(book.name):
            remove: Callable[[str], object] = random.choice((library.delete, library.erase))
            remove(book.name)
    assert list(library.list()) == []
    assert library.scrub() == ()
    assert not shelf.holds(LATIN)
    assert quire.doctor(shelf.storage).symptoms == ()


# Removals with and without scrub


def test_a_deleted_context_leaves_its_bytes_unless_it_is_scrubbed(local: RawStore) -> None:
    library = local.library
    fill(library, "c")
    done = library.delete("c")
    assert (done.contexts, done.forks, done.scrubbed) == (("c",), (), False)
    assert [left.code for left in done.remains] == ["not_scrubbed"]
    assert (local.count() > 0) is (local.kind == "sqlite")
    assert library.scrub() == ()
    assert local.count() == 0
    fill(library, "d")
    done = library.delete("d", scrub=True)
    assert (done.scrubbed, done.remains) == (True, ())
    assert local.count() == 0


def test_an_expired_context_leaves_its_bytes_unless_it_is_scrubbed(local: RawStore) -> None:
    library = local.library
    fill(library, "c")
    (planned,) = library.expire(timedelta(0), dry_run=True, scrub=True)
    assert (planned.scrubbed, planned.remains) == (True, ())
    assert library.exists("c")
    (done,) = library.expire(timedelta(0))
    assert (done.name, done.scrubbed) == ("c", False)
    assert [left.code for left in done.remains] == ["not_scrubbed"]
    fill(library, "d")
    fill(library, "e")
    archives = local.place.parent / "archives"
    gone = library.expire(timedelta(0), action="archive", folder=archives, scrub=True)
    assert [(each.name, each.scrubbed, each.remains) for each in gone] == [("d", True, ()), ("e", True, ())]
    assert local.count() == 0
    assert library.import_(archives / "d.quire") == "d"
    assert local.count() > 0


class Late(FaultyStorage):
    """A storage in which another writer is faster than a removal."""

    def drop(self, name: str, seen: tuple[int, int] | None = None) -> None:
        if seen is not None:
            Library(self.inner).open(name).user("late")
        super().drop(name, seen)


@pytest.mark.parametrize("action", ["delete", "archive"])
def test_a_context_that_changes_meanwhile_does_not_expire(local: RawStore, action: str, tmp_path: Path) -> None:
    local.library.create("c").user("hello")
    folder = tmp_path / "archives" if action == "archive" else None
    assert Library(Late(local.storage)).expire(timedelta(0), action=action, folder=folder) == ()  # type: ignore[arg-type]
    assert [message.content for message in local.library.open("c").messages()] == ["hello", "late"]
    assert folder is None or list(folder.iterdir()) == []


@pytest.mark.parametrize("forked", [False, True])
def test_cleaned_up_messages_leave_no_byte_after_scrubbing(store: RawStore, forked: bool) -> None:
    ctx = store.library.create("c")
    ctx.user("first")
    ctx.user(f"slip {SECRET}")
    ctx.assistant(None, calling("a"))
    ctx.tool_result("a", f"slip {SECRET}")
    ctx.user("last")
    ctx.find(LATIN)
    if forked:  # a fork that came from a context that was removed
        ctx = ctx.fork("f")
        store.library.delete("c")
    ctx.conversation.delete([1, 2])
    assert store.count() > 0
    done = ctx.conversation.cleanup()
    assert (done.messages, done.scrubbed, [left.code for left in done.remains]) == (3, False, ["not_scrubbed"])
    assert ctx.find(LATIN) == []
    again = ctx.conversation.cleanup(scrub=True)
    assert again.messages == 0
    if not again.scrubbed:
        assert [left.code for left in again.remains] == ["server"]
        store.finish_on_server()
    assert store.count() == 0
    assert [message.content for message in ctx.messages()] == ["first", "last"]
    assert ctx.check() == []
    assert SECRET not in whole_repr(list(ctx.history()))
    assert quire.doctor(store.storage).symptoms == ()
    with pytest.raises(InvalidOperation):
        ctx.undo(ctx.seq)


def test_a_moved_page_that_is_cleaned_up_leaves_an_outdated_index(local: RawStore) -> None:
    ctx = local.library.create("c")
    ctx.pages.add_segment(quire.Segment(id="other", name="Other"))
    ctx.user(f"slip {SECRET}")
    ctx.user("last")
    ctx.find(LATIN)  # the index knows the page under its first key
    page = ctx.conversation.page_of(0)
    assert page is not None
    ctx.conversation.compress([0], "a slip")
    done = ctx.conversation.cleanup(scrub=True)
    assert (done.messages, done.scrubbed) == (1, True)
    assert local.count() == 0
    assert quire.doctor(local.storage).symptoms == ()


def test_a_summary_that_waits_for_the_next_fold_leaves_with_the_messages(local: RawStore) -> None:
    config = quire.CompressionConfig(summariser=lambda text, tokens: f"It is {SECRET}.")
    ctx = local.library.create("c", budget=900, compression=config)
    while not ctx.render().fold:
        ctx.user("word " * 50)
    assert ctx.summarising
    assert ctx.summarising.wait(20)
    ctx.conversation.delete([0])
    assert local.count() > 0
    assert ctx.conversation.cleanup(scrub=True).scrubbed
    assert local.count() == 0


def test_a_cleanup_is_not_scrubbed_inside_a_temporary_block(local: RawStore) -> None:
    ctx = local.library.create("c")
    with ctx.temporary(), pytest.raises(InvalidOperation):
        ctx.conversation.cleanup(scrub=True)
    with pytest.raises(InvalidValue):
        ctx.conversation.cleanup(scrub=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        local.library.erase("c", forks="no")  # type: ignore[arg-type]


def test_a_store_in_use_is_reported_and_scrubbed_later(tmp_path: Path) -> None:
    store = RawStore("sqlite", tmp_path)
    fill(store.library, "c")
    store.storage.close()
    library = Library(quire.SQLiteStorage(store.place / "store.db", busy_seconds=0.01))
    with closing(apsw.Connection(str(store.place / "store.db"))) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM sqlite_master").fetchall()
        done = library.erase("c")
        assert not done.scrubbed
        assert [left.code for left in done.remains] == [Busy.code, "copies"]
    assert library.scrub() == ()
    assert store.count() == 0
    library.storage.close()


def test_a_store_in_memory_has_no_remainder() -> None:
    library = Library("memory:")
    library.create("c").user("hello")
    done = library.delete("c")
    assert (done.contexts, done.scrubbed, done.remains, library.scrub()) == (("c",), True, (), ())


# Texts that forks share with a removed context


def test_texts_that_only_removed_forks_read_are_scrubbed(store: RawStore) -> None:
    library = store.library
    ctx = library.create("c")
    ctx.user("first")
    early = ctx.seq
    ctx.user(f"then {SECRET}")
    ctx.fork("late").user("on")
    fork = ctx.fork("early", at=early)
    fork.user("another way")
    library.delete("c")
    library.delete("late")
    left = library.scrub()
    assert [each.code for each in left] == (["server"] if store.kind == "postgres" else [])
    store.finish_on_server()
    assert store.count() == 0
    assert [message.content for message in fork.messages()] == ["first", "another way"]
    assert fork.check() == []


def test_a_text_that_its_context_and_its_fork_deleted_leaves_with_the_context(store: RawStore) -> None:
    library = store.library
    ctx = library.create("c")
    ctx.user("first")
    ctx.user(f"then {SECRET}")
    fork = ctx.fork("f")
    for each in (ctx, fork):
        each.conversation.delete(1)
        each.conversation.cleanup()
    library.delete("c")
    library.scrub()
    store.finish_on_server()
    assert store.count() == 0


@pytest.mark.parametrize("forks", [1, 2])
def test_a_purge_reaches_the_stored_views_of_a_removed_origin(store: RawStore, forks: int) -> None:
    library = store.library
    ctx = library.create("c")
    index = ctx.pages.create_detail_page("keys", "", f"The key of the boat is {SECRET}.", "mem-0")
    ctx.pages.archive(index)
    ctx.user("Where is the key of the boat?")
    view = ctx.render(recall=True)
    ctx.assistant("Here.", view=view)
    others = [ctx.fork(f"f{number}") for number in range(forks)]
    library.delete("c")
    others[0].pages.purge(index)
    store.finish_on_server()
    assert store.count() == 0
    for other in others:
        other.refresh()
        assert [message.content for message in other.messages()] == ["Where is the key of the boat?", "Here."]
        assert other.check() == []
    assert quire.doctor(store.storage).symptoms == ()


def test_a_purged_page_leaves_the_store_and_its_forks(store: RawStore) -> None:
    ctx = store.library.create("c")
    index = ctx.pages.create_detail_page("note", "", f"old {SECRET}", "mem-0")
    ctx.pages.update_page(index, name=f"named {SECRET}", detail=f"new {SECRET}")
    ctx.assistant(None, calling("a"))
    ctx.tool_result("a", f"said {SECRET}")
    fork = ctx.fork("fork")
    fork.pages.set_detail(index, f"in the fork {SECRET}")
    fork.find(LATIN)
    before = stored(ctx)
    kept = ctx.fork("kept")
    kept.pages.purge(index, forks=False)
    assert stored(ctx) == before
    done = fork.pages.purge(index, "usr-1")
    assert {"c", "fork"} <= set(done.contexts)
    store.finish_on_server()
    assert store.library.delete("kept").contexts == ("kept",)
    store.library.scrub()
    store.finish_on_server()
    assert store.count() == 0
    for name in ("c", "fork"):
        fresh = store.library.open(name)
        assert fresh.check() == []
        assert fresh.find(LATIN) == []
        assert fresh.user("and on") == 2
