"""find: the same answers on every backend after any change of the pages, and no hits from hidden text."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quire
from quire import (
    ContextSystem,
    InvalidValue,
    Lifecycle,
    MemoryStorage,
    NoSuchSegment,
    Permission,
    QuireError,
    Segment,
    SQLiteStorage,
    ToolCall,
)
from quire.search import rank as ranking
from quire.search.find import find
from quire.search.query import agent_scope
from tests.books import folder, leaf, new_book
from tests.search.storages import BRIEF, found, shelves, storage_of

_WORDS = "pump valve tank gauge water 水泵 数据 数据库 東京 서울 getUserName user_id HAT136 May 20 src/a.py é"
WORDS = _WORDS.split()
HOSTILE = [
    '"',
    '""',
    '"""',
    "'; DROP TABLE search; --",
    "pump OR valve",
    "pump AND",
    "NOT pump",
    "NEAR(pump valve, 2)",
    "name:pump",
    "body : pump",
    "{body} : pump",
    "^pump",
    "pump +valve",
    "(pump",
    "pump*)",
    "*",
    "**",
    "\\",
    "%_",
    "pump\0valve",
    "\ud800pump",
    "(a+)+$",
    ".*" * 500,
    "((((((((((",
    "-pump",
    "pump " * 1_900,
    "水" * 9_000,
    "a" * 9_999,
    " ".join(f"w{n}" for n in range(1_800)),
]


@pytest.fixture(params=BRIEF)
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = new_book(storage=storage_of(request.param, tmp_path))
    yield made
    made.storage.close()


def fill(books: list[ContextSystem], seed: int, pages: int) -> None:
    for made in books:
        chance = random.Random(seed)
        for _ in range(pages):
            name, about, text = (" ".join(chance.choices(WORDS, k=chance.randint(1, k))) for k in (3, 4, 30))
            made.create_detail_page(name, about, text, "mem-0")


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30), pages=st.integers(0, 40))
def test_every_backend_gives_the_same_order_and_scores(tmp_path_factory: Any, seed: int, pages: int) -> None:
    chance = random.Random(seed)
    with shelves(tmp_path_factory.mktemp("shelves")) as books:
        fill(books, seed, pages)
        for query in [*WORDS, *(" ".join(chance.choices(WORDS, k=k)) for k in (2, 3, 5)), 'pu* "May 20"', "水", "据"]:
            answers = [[(hit.index, hit.score, hit.complete) for hit in made.find(query, 50)] for made in books]
            assert answers[0] == answers[1] == answers[2], query


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
@pytest.mark.parametrize("kind", BRIEF)
def test_every_page_is_found_by_a_rare_word_of_its_own(tmp_path_factory: Any, kind: str, seed: int) -> None:
    """After folding, archiving, moving, removing, undoing, rolling back, forking and copying."""
    chance = random.Random(seed)
    place = tmp_path_factory.mktemp("rare")
    with quire.open(storage_of(kind, place), budget=600) as ctx:
        words: dict[str, str] = {}
        ctx.checkpoint("start")
        for number in range(chance.randint(3, 25)):
            word = f"zq{seed}x{number}"
            if chance.random() < 0.5:
                ctx.add({"role": chance.choice(["user", "assistant"]), "content": f"We say {word} 并且说"})
                words[word] = "said"
            else:
                name, about, text = chance.sample([word, "name", "text"], 3)
                words[word] = ctx.pages.create_detail_page(name, about, text, "mem-0")
            _disturb(ctx, chance, words)
            if chance.random() < 0.3:
                check_rare(ctx, words)
        check_rare(ctx, words)
        fork = ctx.fork("fork")
        check_rare(fork, words)
        target = MemoryStorage()
        fork.pages.migrate(target)
        check_rare(quire.open(target, "fork"), words)
        ctx.rollback("start")
        assert [word for word in words if ctx.find(word)] == []
        ctx.undo(ctx.seq)
        check_rare(ctx, words)
    ctx.pages.storage.close()


def _disturb(ctx: quire.Context, chance: random.Random, words: dict[str, str]) -> None:
    """Change a page or the conversation, and check the search result at once."""
    pages = [word for word, page in words.items() if page not in ("said", "gone")]
    if pages and chance.random() < 0.7:
        word = chance.choice(pages)
        _disturb_page(ctx, chance, words, word)
        return
    match chance.randrange(3):
        case 0:
            ctx.render()
        case 1:
            with ctx.temporary():
                ctx.user("only for a moment: zqmoment")
                assert len(ctx.find("zqmoment")) == 1
                check_rare(ctx, words)
            assert ctx.find("zqmoment") == []
        case 2:
            said = ctx.user("will be deleted: zqdeleted")
            ctx.conversation.delete([said])
            assert ctx.find("zqdeleted") == []


def _disturb_page(ctx: quire.Context, chance: random.Random, words: dict[str, str], word: str) -> None:
    index = words[word]
    if ctx.pages.get_page(index).effective is Lifecycle.COLD_ARCHIVED:
        ctx.pages.recall(index)
        return
    match chance.randrange(5):
        case 0:
            ctx.pages.archive(index, cold=chance.random() < 0.5)
        case 1:
            ctx.pages.remove_page(index)
            words[word] = "gone"
        case 2:
            ctx.pages.remove_page(index)
            ctx.undo(ctx.seq)
        case 3:
            ctx.pages.create_contents_page("folder", "", "mem-0", [index])
        case 4 if ctx.pages.get_page(index).effective is Lifecycle.ACTIVE:
            ctx.pages.hide(index)


def check_rare(ctx: quire.Context, words: dict[str, str]) -> None:
    for word, page in words.items():
        hits = ctx.find(word)
        if page == "gone":
            assert hits == []
        else:
            assert hits, word
            assert page in ("said", hits[0].index)
            assert f"«{word}»" in hits[0].snippet or word == hits[0].name


@pytest.mark.parametrize("query", HOSTILE)
def test_a_hostile_query_is_only_words(book: ContextSystem, query: str) -> None:
    index = leaf(book, "pump", detail="the pump and the valve; 水泵")
    hits = book.find(query)
    assert [hit.index for hit in hits] in ([], [index])
    assert book.check() == []


def test_a_query_of_a_megabyte_is_refused_by_name(book: ContextSystem) -> None:
    with pytest.raises(InvalidValue, match=r"1,048,576 characters; at most 10,000"):
        book.find("x" * (1 << 20))
    for query in (None, 7, b"pump", ["pump"]):
        with pytest.raises(InvalidValue, match="query"):
            book.find(query)  # type: ignore[arg-type]


def test_chinese_words_of_every_length_are_exact(book: ContextSystem) -> None:
    chance = random.Random(5)
    signs = "数据库表水泵天气，a "
    texts = {}
    for _ in range(60):
        text = "".join(chance.choices(signs, k=chance.randint(1, 25)))
        texts[leaf(book, "x", detail=text)] = text
    for length in (1, 2, 3, 4):
        for _ in range(25):
            word = "".join(chance.choices("数据库表水泵天气", k=length))
            hits = {hit.index for hit in book.find(word, 100) if hit.complete}
            assert hits == {index for index, text in texts.items() if word in text}, word


_NAMES = (
    "getUserName getusername user name HAT136 136 hat src/quire/engine.py engine.py engine user_id E-1042 1042"
    " KeyError error cafe café CAFÉ http server eng*"
)


@pytest.mark.parametrize("query", _NAMES.split())
def test_names_in_code_are_found_whole_and_by_part(book: ContextSystem, query: str) -> None:
    leaf(book, "other", detail="nothing of the kind")
    index = leaf(
        book, "code", detail="getUserName(user_id) in src/quire/engine.py: KeyError E-1042 HAT136 HTTPServer café"
    )
    assert found(book, query) == [index]


def test_words_in_a_row_come_first_and_quoted_words_must_stand_in_one(book: ContextSystem) -> None:
    apart = leaf(book, "a", detail="20 people came in May. May I say 20 of 20, May")
    row = leaf(
        book, "b", detail="a long text about the journey that begins on May 20 and what comes of it " + "and more " * 20
    )
    some = leaf(book, "c", detail="in May")
    assert found(book, "May 20") == [row, apart, some]
    assert found(book, '"May 20"') == [row]
    assert [hit.complete for hit in book.find("May 20")] == [True, True, False]


def test_filters_bound_what_is_found(book: ContextSystem) -> None:
    top = folder(book, "pump folder")
    note = book.create_detail_page("pump", "", "pump", top)
    cold = leaf(book, "pump cold")
    book.archive(cold, cold=True)
    other = book.acting_as("ada").create_detail_page("pump of ada", "", "", "usr-0")
    moment = book.get_page(other).created_at
    assert set(found(book, "pump")) == {top, note, cold, other}
    assert set(found(book, "pump", segment="mem")) == {top, note, cold}
    assert found(book, "pump", kind="folder") == [top]
    assert set(found(book, "pump", kind="leaf")) == {note, cold, other}
    assert found(book, "pump", lifecycle=Lifecycle.COLD_ARCHIVED) == [cold]
    assert found(book, "pump", actor="ada") == [other]
    assert found(book, "pump", since=moment) == [other]
    assert set(found(book, "pump", until=moment)) == {top, note, cold}
    assert found(book, "pump", 1, actor="ada") == [other]
    with pytest.raises(NoSuchSegment):
        book.find("pump", segment="nope")
    wrong: dict[str, Any] = {
        "kind": "x",
        "role": "x",
        "lifecycle": 0,
        "since": 5,
        "until": datetime(2020, 1, 1),
        "actor": 3,
    }
    for name, value in wrong.items():
        with pytest.raises(InvalidValue, match=name):
            book.find("pump", **{name: value})
    book.find("pump", since=datetime(2020, 1, 1, tzinfo=UTC))


def test_roles_and_the_way_to_a_page() -> None:
    ctx = quire.open("memory:")
    ctx.user("pump asked")
    ctx.assistant("pump answered")
    ctx.assistant(tool_calls=[ToolCall("c", "look", '{"what": "pump"}')])
    ctx.tool_result("c", "pump result")
    assert [hit.index for hit in ctx.find("pump", role="user")] == ["usr-1"]
    assert {hit.index for hit in ctx.find("pump", role="assistant")} == {"usr-2", "usr-3"}
    assert [hit.index for hit in ctx.find("pump", role="tool")] == ["usr-3"]
    shelf = ctx.pages.create_contents_page("shelf", "", "mem-0")
    note = ctx.pages.create_detail_page("zq", "", "", shelf)
    hit = ctx.find("zq")[0]
    assert (hit.index, hit.path, hit.lifecycle) == (note, ("mem-0", shelf), Lifecycle.ACTIVE)
    ctx.pages.archive(note, cold=True)
    assert (ctx.find("zq")[0].path, ctx.find("zq")[0].lifecycle) == ((), Lifecycle.COLD_ARCHIVED)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
@pytest.mark.parametrize("kind", BRIEF)
def test_private_pages_change_nothing_for_an_agent(tmp_path_factory: Any, kind: str, seed: int) -> None:
    answers = []
    for secrets in (0, 25):
        chance = random.Random(seed)
        made = new_book(storage=storage_of(kind, tmp_path_factory.mktemp("private")))
        made.add_segment(Segment(id="secret", permission=Permission.PRIVATE))
        for number in range(30):
            name, about, text = (" ".join(chance.choices(WORDS, k=k)) for k in (2, 3, 20))
            made.create_detail_page(name, about, text, "mem-0")
            if number < secrets:
                hidden = random.Random(number)
                made.create_detail_page("pump", "valve", " ".join(hidden.choices(WORDS, k=40)), "secret-0")
        state = made._engine.current()
        scope = agent_scope(state)
        queries = [*WORDS, "pump valve", "May 20 tank", "pu*", '"pump valve"', "pump gauge water nowhere"]
        answers.append(
            [[(h.index, h.score, h.snippet) for h in find(state, query, 40, scope=scope)] for query in queries]
        )
        if secrets:
            assert any(hit.index.startswith("secret") for hit in made.find("pump", 60))
            with pytest.raises(NoSuchSegment) as error:
                find(state, "pump", scope=scope, segment="secret")
            assert str(error.value).count("secret") == 1
        made.storage.close()
    assert answers[0] == answers[1]


def test_another_handle_sees_what_was_written_elsewhere(tmp_path: Path) -> None:
    one, two = (new_opened(tmp_path / "book.db") for _ in range(2))
    one.user("kestrel")
    assert [hit.index for hit in two.find("kestrel")] == ["usr-1"]
    two.refresh()
    two.user("kestrel again")
    assert len(one.find("kestrel")) == 2
    one.close()
    two.close()


def new_opened(path: Path) -> quire.Context:
    return quire.open(path)


@pytest.mark.parametrize(
    "harm",
    [
        "DROP TABLE search",
        "DROP TABLE search_state",
        "DROP TABLE search_size",
        "DELETE FROM search_state",
        "DELETE FROM search_data",
        "UPDATE search_state SET version = 99",
        "UPDATE search_state SET identity = x'00'",
        "UPDATE search_state SET reached = -1",
    ],
)
def test_a_missing_or_damaged_index_is_made_anew(tmp_path: Path, harm: str) -> None:
    with quire.open(tmp_path / "book.db") as ctx:
        ctx.user("a kestrel over the tank")
        assert len(ctx.find("kestrel")) == 1
        ctx.pages.storage._db.execute(harm)  # type: ignore[attr-defined]
    with quire.open(tmp_path / "book.db") as ctx:
        assert [hit.index for hit in ctx.find("kestrel")] == ["usr-1"]
        ctx.user("another kestrel")
        assert len(ctx.find("kestrel")) == 2


def test_a_dropped_context_leaves_nothing_in_the_index(tmp_path: Path) -> None:
    storage = SQLiteStorage(tmp_path / "book.db")
    for name in ("one", "two"):
        quire.open(storage, name).user(f"kestrel of {name}")
        quire.open(storage, name).find("kestrel")
    storage.drop("one")
    rows = storage._db.execute("SELECT rowid >> 38 FROM search WHERE search MATCH 'kestrel'").fetchall()
    assert len(rows) == 1
    made = quire.open(storage, "one")
    assert made.find("kestrel") == []
    assert len(quire.open(storage, "two").find("kestrel")) == 1
    storage.close()


def test_finding_writes_nothing_to_the_context(book: ContextSystem) -> None:
    leaf(book, "kestrel")
    before = (book.seq, book.marshal())
    book.find("kestrel")
    assert (book.seq, book.marshal()) == before


def test_a_cleaned_up_conversation_is_found_by_what_is_left(tmp_path: Path) -> None:
    with quire.open(tmp_path / "book.db") as ctx:
        ctx.user("kestrel one")
        ctx.user("kestrel two")
        assert len(ctx.find("kestrel")) == 2
        ctx.conversation.delete([0])
        ctx.conversation.cleanup()
        assert [hit.name for hit in ctx.find("kestrel")] == ["kestrel two"]


def test_hits_of_a_query_that_no_page_answers_are_none(book: ContextSystem) -> None:
    assert book.find("kestrel") == []
    leaf(book, "pump")
    assert book.find("kestrel falcon") == []
    with pytest.raises(QuireError):
        book.find("pump", limit=-1)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 30), limit=st.integers(1, 12))
def test_leaving_common_words_for_later_changes_nothing_in_what_is_found(seed: int, limit: int) -> None:
    chance = random.Random(seed)
    made = new_book()
    words = [f"word{chr(97 + n)}" for n in range(12)]
    for _ in range(40):
        said = chance.choices(words, [1 / (n + 1) for n in range(12)], k=chance.randint(1, 9))
        leaf(made, "x", detail=" ".join(said))
    query = " ".join([*chance.sample(words, 5), "nowhere"])
    usual = made.find(query, limit)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ranking, "_USUAL", -1.0)
        plain = made.find(query, limit)
    assert [hit.score for hit in usual] == pytest.approx([hit.score for hit in plain])
    assert {hit.index for hit in usual if hit.score > plain[-1].score + 1e-9} == {
        hit.index for hit in plain if hit.score > plain[-1].score + 1e-9
    }


def test_an_identifier_is_met_letter_for_letter_before_its_words() -> None:
    ctx = quire.open("memory:")
    for number in range(30):
        ctx.user(f"My user ID is number {number}")
    ctx.assistant("The field is called user_id, and it is a long text: " + "word " * 200)
    ctx.user("Call +1 now")
    assert ctx.find("user_id", limit=3)[0].index == "usr-31"
    assert ctx.find("+1", limit=1)[0].index == "usr-32"
    scores = [hit.score for hit in ctx.find("user_id", limit=20)]
    assert scores == sorted(scores, reverse=True)


def test_a_chapter_is_no_hit_beside_the_page_it_is_called_after() -> None:
    ctx = quire.open("memory:", budget=1_200)
    ctx.user("The ORION-77 project budget is 45,000 euros, approved by Dr. Lindqvist.")
    ctx.assistant("Noted ORION-77.")
    for turn in range(40):
        ctx.user(f"Note {turn}: the pump number {turn} ran well. " + "More words here. " * 6)
        ctx.assistant(f"Noted pump {turn}.")
        ctx.render()
    hits = ctx.find("ORION-77 budget approved")
    assert hits[0].index == "usr-1"
    assert not any(ctx.pages.get_page(hit.index).name.startswith("The ORION") for hit in hits[1:])
    assert ctx.find("ORION-77 budget approved", kind="chapter")


def test_a_wrong_lifecycle_is_refused_with_the_accepted_ones() -> None:
    with pytest.raises(InvalidValue, match=r"'active'.*Lifecycle\.ACTIVE, Lifecycle\.HOT_ARCHIVED"):
        quire.open("memory:").find("x", lifecycle=cast(Any, "active"))
