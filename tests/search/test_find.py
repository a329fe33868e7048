"""find: every page is found after any change, on every backend, and nothing that the asker may not see."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quire
from quire import (
    AgentContext,
    ContextSystem,
    InvalidValue,
    Lifecycle,
    MemoryStorage,
    NoSuchSegment,
    Permission,
    Segment,
    ToolCall,
)
from tests.books import folder, leaf, new_book, refused
from tests.search.storages import BACKENDS, found, storage_of

HOSTILE = """"|""|'; DROP TABLE search; --|pump OR valve|NOT pump|NEAR(pump valve, 2)|{body} : pump|^pump|(pump
*|**|\\|%_|pump\0valve|\ud800pump|(a+)+$|((((((|-pump""".replace("\n", "|").split("|")
HOSTILE += ["pump " * 1_900, "水" * 9_000, " ".join(f"w{n}" for n in range(1_800))]


@pytest.fixture(params=BACKENDS)
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = new_book(storage=storage_of(request.param, tmp_path))
    yield made
    made.storage.close()


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 30))
@pytest.mark.parametrize("kind", BACKENDS)
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
    with pytest.raises(InvalidValue):
        book.find("x" * (1 << 20))
    for query in (None, 7, b"pump", ["pump"]):
        with pytest.raises(InvalidValue):
            book.find(query)  # type: ignore[arg-type]


def test_chinese_words_of_every_length_are_exact(book: ContextSystem) -> None:
    chance = random.Random(5)
    signs = "数据库表水泵天气，a "
    texts = {}
    for _ in range(60):
        text = "".join(chance.choices(signs, k=chance.randint(1, 25)))
        texts[leaf(book, "x", detail=text)] = text
    for length in (1, 2, 3, 4):
        for _ in range(8):
            word = "".join(chance.choices("数据库表水泵天气", k=length))
            hits = {hit.index for hit in book.find(word, 100) if hit.complete}
            assert hits == {index for index, text in texts.items() if word in text}, word


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
        with pytest.raises(InvalidValue):
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


def test_another_handle_sees_what_was_written_elsewhere(tmp_path: Path) -> None:
    one, two = (quire.open(tmp_path / "book.db") for _ in range(2))
    one.user("kestrel")
    assert [hit.index for hit in two.find("kestrel")] == ["usr-1"]
    two.refresh()
    two.user("kestrel again")
    assert len(one.find("kestrel")) == 2
    one.close()
    two.close()


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


def test_pages_with_every_word_come_before_those_with_some() -> None:
    book = new_book()
    b = book.create_detail_page("Flights", "to Boston", "departs on May 21, May 22, May 23", "mem-0")
    a = book.create_detail_page("Flights", "to Seattle", "departs on May 20", "mem-0")
    found = book.find("seattle FLIGHTS may")
    assert [(hit.index, hit.complete) for hit in found] == [(a, True), (b, False)]
    assert [hit.index for hit in book.find('"to seattle" flights')] == [a]
    assert book.find("tacoma spokane") == []


def test_a_name_counts_more_than_a_description_and_that_more_than_a_detail() -> None:
    book = new_book()
    detail = book.create_detail_page("x", "y", "kestrel", "mem-0")
    description = book.create_detail_page("x", "kestrel", "z", "mem-0")
    name = book.create_detail_page("kestrel", "y", "z", "mem-0")
    hits = book.find("kestrel")
    assert [hit.index for hit in hits] == [name, description, detail]
    assert hits[0].score > hits[1].score > hits[2].score > 0
    assert (hits[0].name, hits[0].description) == ("kestrel", "y")


def test_equal_pages_come_in_the_order_of_their_making_and_the_limit_holds() -> None:
    book = new_book()
    pages = [leaf(book, "kestrel") for _ in range(5)]
    assert [hit.index for hit in book.find("kestrel", limit=3)] == pages[:3]
    assert book.find("kestrel", limit=0) == []


def test_a_query_without_words_finds_nothing() -> None:
    book = new_book()
    leaf(book, "kestrel")
    for query in ("", "  \n", "\ud800", "x\0y", '"', "*", "OR falcon", "name:falcon"):
        assert book.find(query) == []


@pytest.mark.parametrize("limit", [-1, 1.5, "3", None, True])
def test_a_wrong_limit_is_refused(limit: int) -> None:
    book = new_book()
    with refused(book, InvalidValue):
        book.find("kestrel", limit)


def test_private_pages_change_nothing_for_an_agent() -> None:
    answers = []
    for secrets in (0, 25):
        book = new_book()
        book.add_segment(Segment(id="secret", permission=Permission.PRIVATE))
        for number in range(30):
            leaf(book, f"pump {number}", detail="pump valve tank 水泵 May 20 " * (number % 5))
            if number < secrets:
                leaf(book, "pump", "secret-0", "pump valve gauge " * 9)
        agent = AgentContext(book)
        queries = ("pump", "pump valve", "水泵", "pu*", '"May 20"', "gauge nowhere")
        answers.append([[(hit.index, hit.score, hit.snippet) for hit in agent.find(query, 40)] for query in queries])
        with pytest.raises(NoSuchSegment) as error:
            agent.find("pump", segment="nope")
        assert "secret" not in str(error.value)
        assert any(hit.index.startswith("secret") for hit in book.find("pump", 60)) is bool(secrets)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("kind", BACKENDS)
def test_a_context_that_was_deleted_and_made_again_is_another_one(tmp_path: Path, kind: str) -> None:
    storage = storage_of(kind, tmp_path)
    library = quire.Library(storage)
    with library.open("book") as ctx:
        ctx.user("kestrel")
        assert [hit.index for hit in ctx.find("kestrel")] == ["usr-1"]
    library.delete("book")
    with library.open("book") as ctx:
        ctx.user("falcon")
        assert ctx.find("kestrel") == []
        assert [hit.index for hit in ctx.find("falcon")] == ["usr-1"]
    storage.close()


def test_what_quire_writes_before_a_message_is_no_word_of_it() -> None:
    ctx = quire.open("memory:")
    ctx.add({"role": "user", "content": "用户 pump", "name": "ada"})
    ctx.assistant(tool_calls=[ToolCall("c1", "look_up", '{"what": "水泵"}')])
    ctx.tool_result("c1", "gauge")
    for query in ("user", "assistant", "call result", "Result of"):
        assert ctx.find(query) == [], query
    for query, page in {"ada": "usr-1", "look_up": "usr-2", "what": "usr-2", "水泵": "usr-2", "c1": "usr-2"}.items():
        assert [hit.index for hit in ctx.find(query)] == [page], query
