"""Library: list, find, page, count and remove contexts, with bounded storage reads."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import InvalidOperation, InvalidValue, Library, MemoryStorage, NoSuchContext
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


def test_an_option_reaches_the_context_and_an_unknown_one_is_refused(library: Library) -> None:
    assert library.open("a", budget=777).budget == 777
    with pytest.raises(TypeError):
        library.open("a", bugdet=777)  # type: ignore[call-arg]


def test_create_makes_a_context_once(library: Library) -> None:
    assert library.create("new", budget=99).budget == 99
    with pytest.raises(InvalidOperation):
        library.create("new")


def test_opening_without_creating_makes_nothing_and_names_what_was_perhaps_meant(library: Library) -> None:
    for call in (library.open, lambda name, **options: quire.open(library.storage, name, **options)):
        assert call("团队-1", create=False).name == "团队-1"
        with pytest.raises(NoSuchContext):
            call("团队1", create=False)
        doubtful: Any = "no"
        with pytest.raises(InvalidValue):
            call("a", create=doubtful)
    assert list(library.list()) == sorted(NAMES)


def test_without_creating_no_store_is_made(tmp_path: Path) -> None:
    for where in (tmp_path / "notes.db", f"file:{tmp_path / 'notes'}"):
        with pytest.raises(quire.StorageFailure):
            quire.open(where, "a", create=False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NoSuchContext):
        quire.open("memory:", "a", create=False)


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


@pytest.mark.parametrize(
    "filters", [{"limit": -1}, {"limit": "x"}, {"since": datetime(2026, 1, 1)}, {"prefix": 3}, {"after": None}]
)
def test_a_filter_that_makes_no_sense_is_refused(library: Library, filters: dict[str, object]) -> None:
    with pytest.raises(InvalidValue):
        library.list(**filters)  # type: ignore[arg-type]


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
    assert after.families["text"] > before.families["text"]
    counted.arm(0)
    info = library.info("c")
    assert counted.calls == ["load"]
    assert (info.seq, info.messages) == (context.seq, 3)
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


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(quire.StorageFailure) as error:
        Library(MemoryStorage()).import_(tmp_path / "没有.quire")
    assert str(error.value) == f"There is no file {str(tmp_path / '没有.quire')!r}."


def test_summaries_without_a_worker_are_requested_once_and_none_after_the_time_is_over() -> None:
    asked, go = list[str](), threading.Event()

    def summarise(text: str, tokens: int) -> str:
        asked.append(text)
        return "In short: a flight."

    library = Library(MemoryStorage(), summariser=lambda text, tokens: None if go.wait(30) else "")
    ctx = library.open("talk", budget=1_500)
    ctx.import_messages({"role": "user", "content": f"HAT{number} is on time. " * 8} for number in range(400))
    assert ctx.render().fold  # of more pages than one worker takes
    late = library.summarise(summariser=summarise, max_seconds=0)
    assert (late.stored, asked) == (0, [])
    report = library.summarise(summariser=summarise)
    assert 0 < report.stored == len(set(asked)) == late.waiting - report.waiting
    again = library.summarise(summariser=summarise)
    assert (again.stored, again.waiting, again.errors) == (0, report.waiting, ())
    go.set()
    assert ctx.summarising is not None
    assert ctx.summarising.wait(20)
    assert library.summarise(summariser=summarise).waiting == 0


@pytest.mark.parametrize("start", ["", "sqlite:", "file:"])
@pytest.mark.parametrize(
    "options",
    [
        *({"budget": -1}, {"budget": True}, {"budget": "8k"}, {"durability": None}, {"durability": ["full"]}),
        *({"counter": 5}, {"key": ""}, {"segments": 5}, {"segments": [5]}, {"compression": 5}, {"context": "a\nb"}),
    ],
)
def test_a_wrong_option_creates_no_store(tmp_path: Path, start: str, options: dict[str, Any]) -> None:
    with pytest.raises(quire.InvalidValue):
        quire.open(f"{start}{tmp_path / 'new'}", **options)
    assert list(tmp_path.iterdir()) == []
    quire.open(f"{start}{tmp_path / 'new'}").close()
    assert (tmp_path / "new").exists()
