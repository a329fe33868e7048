"""Erasure: no byte of a removed context is left in the store, and the report names everything that was not reached."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Thread
from time import sleep

import pytest
from msgspec.structs import replace

import quire
import quire.aio
from quire import Busy, Conflict, Context, InvalidOperation, InvalidValue, Library, NoSuchContext
from quire.core.records import ORIGINS, decode_head, encode_record
from quire.storage.base import NOTE, Delete
from quire.testing.case import contents
from tests.maintenance.raw_stores import CHINESE, LATIN, SECRET, RawStore
from tests.marks import broad
from tests.system.test_purge import Shelf
from tests.system.test_purge_anywhere import written
from tests.talks import calling
from tests.whole_values import whole_repr
from tests.windows.sample_apps import Counter


@pytest.fixture(params=["sqlite", "file", *broad("s3", "postgres")])
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
    before = contents(store.storage, "other")
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
    assert {"page", "body", "message", "journal", "vector", "note", "layout"} <= set(done.reached)
    assert [left.code for left in done.remains if left.code != "server"] == ["copies"]
    assert done.scrubbed is (store.kind != "postgres")
    if store.kind == "postgres":
        assert "VACUUM (FULL, ANALYZE)" in next(left.text for left in done.remains if left.code == "server")
    store.finish_on_server()
    assert store.count() == 0
    assert list(library.list()) == ["other"]
    assert contents(store.storage, "other") == before
    other.refresh()
    assert other.check() == []
    assert other.find("harmless")
    assert quire.doctor(store.storage).symptoms == ()
    with pytest.raises(NoSuchContext):
        ctx.user("still here?")
    with pytest.raises(NoSuchContext):
        library.erase(SECRET)


@pytest.mark.broad
def test_old_versions_in_a_bucket_are_reported(tmp_path: Path) -> None:
    store = RawStore("s3-versions", tmp_path)
    ctx = store.library.create("c")
    ctx.user(f"slip {SECRET}")
    store.library.create("other").user("hello")
    done = store.library.erase("c")
    assert not done.scrubbed
    assert "deletes old versions" in next(left.text for left in done.remains if left.code == "server")
    assert store.count() > 0
    store.finish_on_server()
    assert store.count() == 0
    assert [message.content for message in Library(store.open()).open("other").messages()] == ["hello"]


def test_forks_are_not_removed_without_being_asked(local: RawStore) -> None:
    library = local.library
    library.create("c").user("hello")
    library.fork("c", "f")
    library.fork("f", "g")
    with pytest.raises(InvalidOperation, match=r"'c' has forks, .*: 'f', 'g'.*erase\('c'\)"):
        library.erase("c", forks=False)
    assert list(library.list()) == ["c", "f", "g"]
    done = library.erase("f")
    assert (done.contexts, done.forks) == (("f", "g"), ("g",))
    (related,) = [left for left in done.remains if left.code == "related"]
    assert "'c'" in related.text
    assert library.erase("c", forks=False).contexts == ("c",)


def test_forks_of_an_older_quire_are_found_by_their_family(local: RawStore) -> None:
    """Such a fork knows only the first of its origins."""
    library = local.library
    library.create("c").user("hello")
    library.fork("c", "f")
    library.fork("f", "g")
    for name in ("f", "g"):
        head = local.storage.head(name)
        assert head is not None
        value = encode_record(0, replace(decode_head(head.value), lineage=()))
        commit = quire.storage.base.Commit(head.version, head.version, value, [Delete(NOTE, ORIGINS)])
        local.storage.commit(name, commit)
    local.storage.close()
    library = Library(local.open())
    assert library.erase("f").forks == ()
    assert library.erase("c").forks == ("g",)


def test_an_erasure_that_was_interrupted_is_completed(local: RawStore, monkeypatch: pytest.MonkeyPatch) -> None:
    library = local.library
    fill(library, "c").fork("f").fork("g")
    drop, dropped = local.storage.drop, list[str]()

    def fail(context: str) -> None:
        if dropped:
            raise KeyboardInterrupt
        dropped.append(context)
        drop(context)

    with monkeypatch.context() as patch:
        patch.setattr(local.storage, "drop", fail)
        with pytest.raises(KeyboardInterrupt):
            library.erase("c")
    assert library.exists("c")
    library.erase("c")
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
    seed = int(os.environ.get("QUIRE_SEED") or Random().randrange(1 << 32))
    for step in range(60 if request.config.getoption("--long") else 1):
        place = tmp_path / str(step)
        place.mkdir()
        try:
            erase_one_by_one(Shelf(backend, place), Random(seed + step))
        except BaseException as error:
            error.add_note(f"QUIRE_SEED={seed + step}")
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


def test_a_damaged_context_is_erased_too(tmp_path: Path) -> None:
    store = RawStore("sqlite", tmp_path)
    fill(store.library, "c")
    store.storage._db.execute("UPDATE context SET head = x'00' WHERE name = 'c'")  # type: ignore[attr-defined]
    store.storage._db.execute("UPDATE page SET value = 7")  # type: ignore[attr-defined]
    done = store.library.erase("c")
    assert [left.code for left in done.remains] == ["unknown", "copies"]
    assert done.reached["message"] > 20
    assert "page" not in done.reached
    assert store.count() == 0


def test_records_without_a_head_are_reported(tmp_path: Path) -> None:
    """They may belong to a fork."""
    store = RawStore("sqlite", tmp_path)
    store.library.create("c").fork("f").user(SECRET)
    store.storage._db.execute("DELETE FROM context WHERE name = 'f'")  # type: ignore[attr-defined]
    done = store.library.erase("c")
    assert done.contexts == ("c",)
    assert [left.code for left in done.remains] == ["unknown", "copies"]
    assert "no row with its name" in done.remains[0].text


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


def test_a_cleanup_is_not_scrubbed_inside_a_temporary_block(local: RawStore) -> None:
    ctx = local.library.create("c")
    with ctx.temporary(), pytest.raises(InvalidOperation, match="Leave the block first"):
        ctx.conversation.cleanup(scrub=True)
    with pytest.raises(InvalidValue, match="scrub"):
        ctx.conversation.cleanup(scrub=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="forks"):
        local.library.erase("c", forks="no")  # type: ignore[arg-type]


def test_a_store_in_use_is_reported_and_scrubbed_later(tmp_path: Path) -> None:
    store = RawStore("sqlite", tmp_path)
    fill(store.library, "c")
    reader = quire.SQLiteStorage(store.place / "store.db")
    store.storage._db.set_busy_timeout(10)  # type: ignore[attr-defined]
    with reader.snapshot("c"):
        done = store.library.erase("c")
        assert not done.scrubbed
        assert [left.code for left in done.remains] == [Busy.code, "copies"]
    assert store.library.scrub() == ()
    assert store.count() == 0
    reader.close()


def test_a_store_in_memory_has_no_remainder() -> None:
    library = Library("memory:")
    library.create("c").user("hello")
    assert library.delete("c") == quire.maintenance.erasure.Erasure(contexts=("c",))
    assert library.scrub() == ()


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
    assert SECRET in "".join(ctx.conversation.prelude(1))
    others = [ctx.fork(f"f{number}") for number in range(forks)]
    library.delete("c")
    others[0].pages.purge(index)
    store.finish_on_server()
    assert store.count() == 0
    for other in others:
        other.refresh()
        assert SECRET not in "".join(other.conversation.prelude(1))
        assert [message.content for message in other.messages()] == ["Where is the key of the boat?", "Here."]
        assert other.check() == []
    assert quire.doctor(store.storage).symptoms == ()


def test_a_purge_of_one_fork_leaves_an_existing_origin_as_it_is(store: RawStore) -> None:
    ctx = store.library.create("c")
    index = ctx.pages.create_detail_page("keys", "", "The key of the boat is under the mat.", "mem-0")
    ctx.pages.archive(index)
    ctx.user("Where is the key of the boat?")
    ctx.assistant("Here.", view=ctx.render(recall=True))
    before = contents(store.storage, "c")
    ctx.fork("f").pages.purge(index, forks=False)
    assert contents(store.storage, "c") == before


# The same in asyncio, and a copy for a person


def test_the_async_library_erases_too(tmp_path: Path) -> None:
    asyncio.run(erase_async(tmp_path))


async def erase_async(tmp_path: Path) -> None:
    async with quire.aio.Library(tmp_path / "a.db") as library:
        async with library.create("c") as ctx:
            await ctx.user("hello")
            await ctx.fork("f")
        assert (await library.erase("c")).forks == ("f",)
        async with library.create("d") as ctx:
            assert (await ctx.conversation.cleanup(scrub=True)).scrubbed
        assert (await library.delete("d", scrub=True)).scrubbed
        assert await library.scrub() == ()


def confidential(library: Library) -> Context:
    ctx = library.create("ada")
    ctx.system("Be brief.")
    ctx.user("Hello <b>there</b> 你好")
    ctx.assistant("A slip", calling("a"))
    ctx.tool_result("a", "found it")
    ctx.conversation.delete(2)
    dot = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    ctx.add({"role": "user", "content": [{"type": "text", "text": "Look:"}, dot]})
    ctx.pages.add_segment(quire.Segment(id="staff", name="Staff", permission=quire.Permission.PRIVATE))
    ctx.pages.create_detail_page("opinion", "", f"difficult {SECRET}", "staff-0")
    note = ctx.pages.create_detail_page("address", "", f"was {SECRET}", "mem-0")
    ctx.pages.set_detail(note, "Rue des Fleurs 7")
    ctx.pages.archive(note, cold=True)
    return ctx


@pytest.mark.parametrize("form", ["json", "html"])
def test_a_copy_for_a_person_has_no_private_segment_and_no_history(form: str, tmp_path: Path) -> None:
    library = Library("memory:")
    confidential(library)
    path = tmp_path / f"ada.{form}"
    done = library.export("ada", path, format=form)  # type: ignore[arg-type]
    data = path.read_bytes()
    assert (done.bytes, done.phase) == (len(data), "done")
    text = data.decode()
    for hidden in (LATIN, CHINESE, "Staff", "staff-0", "opinion", "difficult"):
        assert hidden not in text
        assert json.dumps(hidden).strip('"') not in text
    for shown in ("Be brief.", "你好", "A slip", "found it", "Rue des Fleurs 7", "iVBORw0KGgo="):
        assert shown in text
    with pytest.raises(InvalidOperation, match="exists already"):
        library.export("ada", path, format=form)  # type: ignore[arg-type]
    with pytest.raises(NoSuchContext, match="'eve'"):
        library.export("eve", path, format=form, overwrite=True)  # type: ignore[arg-type]
    assert path.read_bytes() == data


def test_the_html_cannot_run_anything(tmp_path: Path) -> None:
    library = Library("memory:")
    ctx = library.create("<script>alert(1)</script>")
    ctx.user("<script>alert(2)</script>")
    ctx.pages.create_detail_page('"><img src=x onerror=alert(3)>', "<i>", "</pre><script>", "mem-0")
    link = {"type": "image_url", "image_url": {"url": 'https://x.y/"><script>.png'}}
    ctx.user([{"type": "text", "text": "<b>"}, link])
    library.export(ctx.name, tmp_path / "x.html", format="html")
    text = (tmp_path / "x.html").read_text()
    assert "<script" not in text
    assert "<img" not in text
    assert "default-src 'none'" in text


def test_the_json_of_a_person_can_be_loaded(tmp_path: Path) -> None:
    library = Library("memory:")
    ctx = confidential(library)
    library.export("ada", tmp_path / "ada.json", format="json")
    again = library.create("again")
    again.pages.load(tmp_path / "ada.json")
    assert [message.content for message in again.messages()] == [message.content for message in ctx.messages()]
    assert again.check() == []
    whole = json.loads(ctx.pages.marshal())
    copy = json.loads((tmp_path / "ada.json").read_bytes())
    assert copy["pages"] == {index: page for index, page in whole["pages"].items() if not index.startswith("staff")}


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    library = Library("memory:")
    library.create("c")
    with pytest.raises(InvalidValue, match=r"format is 'xml'; use quire, json, html\."):
        library.export("c", tmp_path / "c", format="xml")  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()


def test_the_archive_is_still_everything(tmp_path: Path) -> None:
    library = Library(quire.SQLiteStorage(tmp_path / "a.db"))
    ctx = confidential(library)
    library.export("ada", tmp_path / "ada.quire")
    library.import_(tmp_path / "ada.quire", "again")
    assert library.open("again").pages.marshal() == ctx.pages.marshal()
