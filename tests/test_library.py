"""Library: list, find, page, count and remove contexts, with bounded storage reads."""

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import Corrupt, InvalidOperation, InvalidValue, Library, MemoryStorage, NoSuchContext, SQLiteStorage
from quire.core.records import page_key
from quire.maintenance.retention import REMOVING_HEAD
from quire.model.clock import to_datetime
from quire.open_context import Options, Setup
from quire.storage.base import JOURNAL, Commit, Delete, Put, Symptom
from quire.testing import FaultyStorage
from tests.books import WordCounter, new_book

NAMES = ["a", "b", "team-1", "team-2", "team", "teams", "团队-1", "团队-2"]


@pytest.fixture
def library() -> Library:
    library = Library(MemoryStorage())
    for name in NAMES:
        library.open(name, counter=WordCounter())
    return library


# Opening and making


def test_the_options_of_open_are_the_same_everywhere() -> None:
    parameters = inspect.signature(quire.open).parameters
    assert {*parameters} - {"where", "context", "durability", "create"} == {*Setup._fields} == Options.__optional_keys__
    for name, default in Setup._field_defaults.items():
        assert parameters[name].default == default


def test_an_option_reaches_the_context_and_an_unknown_one_is_refused(library: Library) -> None:
    assert library.open("a", budget=777).budget == 777
    with pytest.raises(TypeError, match="bugdet"):
        library.open("a", bugdet=777)  # type: ignore[call-arg]


def test_create_makes_a_context_once(library: Library) -> None:
    assert library.create("new", budget=99).budget == 99
    with pytest.raises(InvalidOperation, match="'new' exists already"):
        library.create("new")


def test_a_context_that_another_created_a_moment_ago_is_not_created_twice() -> None:
    storage = MemoryStorage()

    class Late(MemoryStorage):
        """Reads before the other one commits, and commits after it."""

        def head(self, context: str) -> None:
            return None

        def commit(self, context: str, commit: Commit) -> None:
            quire.open(storage, context)
            storage.commit(context, commit)

    with pytest.raises(InvalidOperation, match="exists already"):
        Library(Late()).create("c")


def test_one_that_was_made_and_deleted_while_it_was_opened_is_no_husk() -> None:
    class Passing(MemoryStorage):
        def commit(self, context: str, commit: Commit) -> None:
            raise quire.Conflict("somebody made it, and deleted it again")

    with pytest.raises(quire.Conflict):
        Library(Passing()).open("notes")


def test_opening_without_creating_makes_nothing_and_names_what_was_perhaps_meant(library: Library) -> None:
    for call in (library.open, lambda name, **options: quire.open(library.storage, name, **options)):
        assert call("团队-1", create=False).name == "团队-1"
        with pytest.raises(NoSuchContext, match=r"No context '团队1' in this store. Did you mean '团队-1'\?"):
            call("团队1", create=False)
        doubtful: Any = "no"
        with pytest.raises(InvalidValue, match="create"):
            call("a", create=doubtful)
    assert list(library.list()) == sorted(NAMES)


def test_without_creating_no_store_is_made(tmp_path: Path) -> None:
    for where in (tmp_path / "notes.db", f"file:{tmp_path / 'notes'}"):
        with pytest.raises(quire.StorageFailure, match="There is no store at"):
            quire.open(where, "a", create=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NoSuchContext, match="Contexts there: none"):
        quire.open("memory:", "a", create=False)


def test_a_name_that_is_not_there_costs_a_few_names_whatever_there_are() -> None:
    storage = MemoryStorage()
    asked: list[str] = []

    class Counting(FaultyStorage):
        def contexts(self, after: str = "") -> Iterator[str]:
            return (asked.append(name) or name for name in storage.contexts(after))  # type: ignore[func-returns-value]

    for number in range(9_000):
        storage.commit(f"agent-{number:04}", Commit(0, 1, b"head", []))
    with pytest.raises(NoSuchContext, match=r"Did you mean 'agent-8412'.*'agent-0011' and more"):
        quire.open(Counting(storage), "agent-8412x", create=False)
    assert len(asked) <= 2_000


# Listing


def test_names_come_in_order_and_by_the_page(library: Library) -> None:
    assert list(library.list()) == sorted(NAMES)
    seen: list[str] = []
    while page := list(library.list(seen[-1] if seen else "", limit=3)):
        assert len(page) <= 3
        seen += page
    assert seen == sorted(NAMES)
    assert list(library.list(limit=0)) == []


@pytest.mark.parametrize("after", ["", "a", "team", "team-1", "teams", "z", "团队-1"])
@pytest.mark.parametrize("prefix", ["", "team", "team-", "团队", "none", " "])
def test_a_prefix_bounds_what_is_listed(library: Library, after: str, prefix: str) -> None:
    expected = sorted(name for name in NAMES if name > after and name.startswith(prefix))
    assert list(library.list(after, prefix=prefix)) == expected


def test_names_are_listed_by_the_time_of_the_last_change() -> None:
    storage = MemoryStorage()
    for number, name in enumerate("abc"):
        new_book(storage=storage, context=name, clock=lambda number=number: 1_000 * (number + 1))
    library = Library(storage)
    assert list(library.list(since=to_datetime(2_000))) == ["b", "c"]
    assert list(library.list(until=to_datetime(2_000))) == ["a", "b"]
    assert list(library.list(since=to_datetime(1_500), until=to_datetime(2_500), limit=5)) == ["b"]


@pytest.mark.parametrize(
    "filters", [{"limit": -1}, {"limit": "x"}, {"since": datetime(2026, 1, 1)}, {"prefix": 3}, {"after": None}]
)
def test_a_filter_that_makes_no_sense_is_refused(library: Library, filters: dict[str, object]) -> None:
    with pytest.raises(InvalidValue):
        library.list(**filters)  # type: ignore[arg-type]


def test_many_contexts_are_listed_and_opened_with_the_reads_of_a_few(tmp_path: Path) -> None:
    def calls(count: int) -> list[str]:
        storage = SQLiteStorage(tmp_path / f"{count}.db")
        for number in range(count):
            storage.commit(f"c{number:06}", Commit(0, 1, b"", ()))
        counted = FaultyStorage(storage)
        library = Library(counted)
        library.create("c000005x")
        counted.arm(0)
        assert list(library.list("c000003", limit=3)) == ["c000004", "c000005", "c000005x"]
        assert list(library.list(prefix="c000005", limit=9)) == ["c000005", "c000005x"]
        assert library.exists("c000007")
        assert library.open("c000005x").seq == 1
        return list(counted.calls)

    assert calls(10) == calls(2_000)


# Information on a context


def test_info_is_one_read_and_usage_counts_what_is_there() -> None:
    counted = FaultyStorage(MemoryStorage())
    library = Library(counted)
    context = library.open("c", counter=WordCounter())
    context.user("one two three")
    context.assistant("四 五")
    index = context.pages.create_detail_page("note", "", "six seven", "mem-0")
    context.pages.archive(index, cold=True)
    before = library.usage("c")
    assert (before.pages, before.messages, before.entries) == (4 + 3, 2, context.seq)
    assert before.tokens == sum(page.tokens for page in context.pages.list_pages() if page.index not in ROOTS)
    assert before.bytes == sum(before.families.values()) > 0
    context.user("eight")
    after = library.usage("c")
    assert (after.messages, after.entries) == (3, before.entries + 1)
    assert after.families["message"] > before.families["message"]
    counted.arm(0)
    info = library.info("c")
    assert counted.calls == ["head"]
    assert (info.seq, info.messages, info.finished) == (context.seq, 3, True)
    assert info.created_at <= info.updated_at
    for ask in (library.info, library.usage):
        with pytest.raises(NoSuchContext):
            ask("none")


def test_info_tells_how_many_numbers_each_segment_has_used_up(library: Library) -> None:
    context = library.open("a")
    before = library.info("a").numbered
    for parent in ("mem-0", "usr-0", "mem-0"):
        last = context.pages.create_detail_page("note", "", "text", parent)
    context.pages.remove_page(last)
    after = library.info("a").numbered
    assert {segment: after[segment] - before[segment] for segment in after} == {"sys": 0, "mem": 2, "usr": 1, "win": 0}


ROOTS = {"sys-0", "mem-0", "usr-0", "win-0"}


# Letting go


def aged(*ages: int) -> Library:
    """Return a library of contexts that were last changed this many days ago."""
    storage = MemoryStorage()
    now = int(datetime.now(UTC).timestamp() * 1_000)
    for days in ages:
        new_book(storage=storage, context=f"d{days}", clock=lambda days=days: now - days * 86_400_000)
    return Library(storage)


def test_old_contexts_are_deleted_and_a_dry_run_says_which() -> None:
    library = aged(1, 10, 100)
    planned = library.expire(timedelta(days=5), dry_run=True)
    assert [gone.name for gone in planned] == ["d10", "d100"]
    assert list(library.list()) == ["d1", "d10", "d100"]
    assert library.expire(timedelta(days=5)) == planned
    assert list(library.list()) == ["d1"]
    assert library.expire(timedelta(days=5)) == ()


def test_a_prefix_and_a_moment_bound_what_is_let_go_of() -> None:
    library = aged(1, 10, 100)
    moment = datetime.now(UTC) - timedelta(days=50)
    assert library.expire(moment, prefix="d10", dry_run=True)[0].name == "d100"
    assert library.expire(moment, prefix="x") == ()


def test_archived_contexts_come_back_from_their_files(tmp_path: Path) -> None:
    library = aged(1, 10)
    stood = library.open("d10").pages.marshal()
    (gone,) = library.expire(timedelta(days=5), action="archive", folder=tmp_path / "old")
    assert gone.path == str(tmp_path / "old" / "d10.quire")
    assert list(library.list()) == ["d1"]
    assert library.import_(gone.path) == "d10"
    assert library.open("d10").pages.marshal() == stood


def test_an_archive_that_was_interrupted_after_writing_goes_on(tmp_path: Path) -> None:
    library = aged(10)
    library.export("d10", tmp_path / "d10.quire")
    assert len(library.expire(timedelta(days=5), action="archive", folder=tmp_path)) == 1
    assert list(library.list()) == []


def test_a_file_of_another_context_is_not_taken_for_the_archive(tmp_path: Path) -> None:
    aged(20).export("d20", tmp_path / "d10.quire")
    before = (tmp_path / "d10.quire").read_bytes()
    (tmp_path / "d10.2.quire").write_bytes(b"cut off")
    library = aged(10)
    (gone,) = library.expire(timedelta(days=5), action="archive", folder=tmp_path)
    assert gone.path == str(tmp_path / "d10.3.quire")
    assert (tmp_path / "d10.quire").read_bytes() == before
    assert library.import_(gone.path) == "d10"


def test_a_name_that_comes_again_is_archived_beside_the_first(tmp_path: Path) -> None:
    library = aged(10)
    paths = []
    for _ in range(3):
        (gone,) = library.expire(timedelta(days=5), action="archive", folder=tmp_path)
        paths.append(Path(gone.path or "").name)
        aged(10).migrate(library)
    assert paths == ["d10.quire", "d10.2.quire", "d10.3.quire"]


@pytest.mark.parametrize("damage", ["record", "head"])
def test_a_damaged_context_stays_is_named_and_does_not_hold_up_the_others(tmp_path: Path, damage: str) -> None:
    library = aged(10, 20, 30)
    stored = library.storage.head("d20")
    assert stored is not None
    head, writes = (b"damaged!", ()) if damage == "head" else (stored.value, [Put(JOURNAL, 1, b"damaged!")])
    library.storage.commit("d20", Commit(stored.version, stored.version, head, writes))
    gone = library.expire(timedelta(days=5), action="archive", folder=tmp_path)
    assert [(one.name, bool(one.problem), one.path is not None) for one in gone] == [
        ("d10", False, True),
        ("d20", True, False),
        ("d30", False, True),
    ]
    assert ("head record" if damage == "head" else "'d20': journal record 1") in gone[1].problem
    assert (gone[1].updated_at is None) is (damage == "head")
    assert list(library.list()) == ["d20"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d10.quire", "d30.quire"]


def test_an_archive_that_came_too_late_leaves_no_file(tmp_path: Path) -> None:
    library = aged(10)
    inner = library.storage

    class Meddled(FaultyStorage):
        def commit(self, context: str, commit: Commit) -> None:
            if commit.head == REMOVING_HEAD:
                quire.open(inner, context).pages.hide("mem-0")
            super().commit(context, commit)

    assert Library(Meddled(inner)).expire(timedelta(days=5), action="archive", folder=tmp_path) == ()
    assert list(tmp_path.iterdir()) == []
    assert library.open("d10").check() == []


def test_two_who_archive_the_same_context_at_once_do_not_remove_its_file(tmp_path: Path) -> None:
    library = aged(10)
    inner = library.storage
    stood = library.open("d10").pages.marshal()

    class Overtaken(FaultyStorage):
        def commit(self, context: str, commit: Commit) -> None:
            if commit.head == REMOVING_HEAD:
                assert len(Library(inner).expire(timedelta(days=5), action="archive", folder=tmp_path)) == 1
            super().commit(context, commit)

    (gone,) = Library(Overtaken(inner)).expire(timedelta(days=5), action="archive", folder=tmp_path)
    assert [str(path) for path in tmp_path.iterdir()] == [gone.path]
    assert not library.exists("d10")
    assert library.import_(gone.path or "") == "d10"
    assert library.open("d10").pages.marshal() == stood


def test_two_who_write_the_same_archive_at_once_remove_the_context(tmp_path: Path) -> None:
    library = aged(10)
    inner = library.storage

    class Overtaken(FaultyStorage):
        def scan(self, *arguments: Any, **options: Any) -> Any:
            path = tmp_path / "d10.quire"
            if not path.exists():
                library.export("d10", path)
            return super().scan(*arguments, **options)

    (gone,) = Library(Overtaken(inner)).expire(timedelta(days=5), action="archive", folder=tmp_path)
    assert (gone.problem, gone.path) == ("", str(tmp_path / "d10.quire"))
    assert [str(path) for path in tmp_path.iterdir()] == [gone.path]
    assert not library.exists("d10")


def test_a_context_that_is_changed_meanwhile_stays(tmp_path: Path) -> None:
    library = aged(10)
    inner = library.storage

    class Meddled(FaultyStorage):
        def commit(self, context: str, commit: Commit) -> None:
            if commit.head == REMOVING_HEAD:
                quire.open(inner, context).pages.hide("mem-0")
            super().commit(context, commit)

    assert Library(Meddled(inner)).expire(timedelta(days=5)) == ()
    assert library.open("d10").check() == []


def test_a_context_on_its_way_out_is_finished_off_by_the_next_call() -> None:
    library = aged(1)
    library.storage.commit("half", Commit(0, -1, REMOVING_HEAD, ()))
    assert library.info("half").finished is False
    assert library.expire(timedelta(days=5)) == ()
    assert not library.exists("half")


@pytest.mark.parametrize(
    ("older_than", "options"),
    [
        (timedelta(days=-1), {}),
        (30, {}),
        (datetime(2026, 1, 1), {}),
        (timedelta(1), {"action": "burn"}),
        (timedelta(1), {"action": "archive"}),
        (timedelta(1), {"folder": "x"}),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(older_than: object, options: dict[str, object]) -> None:
    library = aged(10)
    with pytest.raises(InvalidValue):
        library.expire(older_than, **options)  # type: ignore[arg-type]
    assert library.exists("d10")


def test_a_whole_library_moves_and_leaves_out_what_was_never_finished(tmp_path: Path) -> None:
    library = aged(1, 10)
    library.fork("d1", "fork")
    library.storage.commit("half", Commit(0, -1, REMOVING_HEAD, ()))
    with Library(tmp_path / "x.db") as target:
        library.migrate(target)
        assert list(target.list()) == ["d1", "d10", "fork"]
        assert target.open("fork").pages.marshal() == library.open("fork").pages.marshal()


def test_what_is_said_of_contexts_is_short_and_names_them() -> None:
    storage = MemoryStorage()
    long = "长" * 190
    ctx = Library(storage).create(long)
    ctx.user("一")
    with pytest.raises(NoSuchContext) as missing:
        Library(storage).open(long[:-1], create=False)
    assert len(str(missing.value)) < 500
    head = storage.head(long)
    assert head is not None
    conversation = page_key(2, 0)
    for write, said in (
        (Put("message", 0, b"torn"), "message record 0 is damaged"),
        (Put("page", conversation + 1, b"torn", conversation, b"\x80"), "page usr-1 is damaged"),
        (Delete("page", conversation), "page usr-0 is missing"),
    ):
        storage.commit(long, Commit(head.version, head.version, head.value, [write]))
        fresh = Library(storage).open(long)
        with pytest.raises(Corrupt, match=f"^Context '长{{80}}'… \\(190 long\\): {said}"):
            list(fresh.messages())
    assert repr(fresh.messages()) == "<messages that cannot be read: Corrupt>"


def test_a_finding_is_a_sentence_of_its_own() -> None:
    finding = Symptom(code="x", severity="error", where="mem-2", text="its body 1 is missing", remedy="Restore it.")
    assert str(finding) == "error [x] mem-2: its body 1 is missing. Restore it."


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(quire.StorageFailure) as error:
        Library(MemoryStorage()).import_(tmp_path / "没有.quire")
    assert str(error.value) == f"There is no file {str(tmp_path / '没有.quire')!r}."


@pytest.mark.parametrize("start", ["", "sqlite:", "file:"])
@pytest.mark.parametrize(
    "options", [{"budget": -1}, {"counter": 5}, {"key": ""}, {"segments": 5}, {"compression": 5}, {"context": "a\nb"}]
)
def test_a_wrong_option_creates_no_store(tmp_path: Path, start: str, options: dict[str, Any]) -> None:
    with pytest.raises(quire.InvalidValue):
        quire.open(f"{start}{tmp_path / 'new'}", **options)
    assert list(tmp_path.iterdir()) == []
    quire.open(f"{start}{tmp_path / 'new'}").close()
    assert (tmp_path / "new").exists()
