"""Text to terms."""

import re
from unicodedata import normalize

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quire
from quire.search import tokenizer
from quire.search.page_text import CLOSE, OPEN, make_snippet
from quire.search.query import MAX_QUERY, parse_query
from quire.search.tokenizer import MAX_TERM, PART_SEPARATOR, split_terms, stem, tokenize
from quire.storage.search_protocol import Phrase, join_terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Fly to Seattle on May 20!", ["fly", "to", "seattle", "on", "may", "20"]),
        ("src/quire/engine.py:42", ["src", "quire", "engine", "py", "42"]),
        ("user_id", ["user", "id"]),
        ("getUserName", ["getusername"]),
        ("ＡＢＣ　１２", ["abc", "12"]),
        ("Straße Ørsted Łódź café", ["strasse", "orsted", "lodz", "cafe"]),
        ("İstanbul ılık Việt Nam", ["istanbul", "ilik", "viet", "nam"]),
        ("Ёлка Йод ΙΣΧΎΣ שָׁלוֹם", ["елка", "йод", "ισχυσ", "שלום"]),
        ("2024-05-20T10:30:00Z", ["2024", "05", "20", "10", "30", "00"]),
        ("v2.3.1 ｖ２ 版本v2 rev2", ["v", "2", "3", "1", "v", "2", "版本", "本", "v", "2", "rev2"]),
        ("5PM, 10:30am", ["5", "pm", "10", "30", "am"]),
        ("数据库", ["数据", "据库", "库"]),
        ("库", ["库"]),
        ("iPhone手机", ["iphone", "手机", "机"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー", "ー"]),
        ("서울에서", ["서울", "울에", "에서", "서"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("🙂 ok", ["🙂", "ok"]),
        ("--- ... !!!", []),
        ("\0\ud800", []),
    ],
)
def test_terms_of_many_languages(text: str, expected: list[str]) -> None:
    assert split_terms(text) == expected


def test_composed_and_decomposed_characters_are_the_same() -> None:
    for text in ("café", "한국어", "がぎぐ"):
        assert split_terms(normalize("NFD", text)) == split_terms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserName", ["get", "user", "name", PART_SEPARATOR, "getuser", "username"]),
        ("HTTPServer2", ["http", "server", "2", PART_SEPARATOR, "httpserver", "server2"]),
        ("iPhone15 手机", ["i", "phone", "15", PART_SEPARATOR, "iphone", "phone15"]),
        ("HAT136 on GitHub, HAT136", ["hat", "136", PART_SEPARATOR, "git", "hub", PART_SEPARATOR]),
        ("3f9c2d4", ["3", "f", "9", "c", "2", "d", "4", PART_SEPARATOR]),  # data: nothing was joined
        ("v2 at 10:30am", []),
        ("plain words of prose. Another Sentence, USA", []),
        ("a3f9c2d4e5b6a7f8a9d0", []),
    ],
)
def test_parts_lead_to_compound_names(text: str, expected: list[str]) -> None:
    assert tokenize(text)[1] == expected


@given(st.text())
def test_no_term_is_long_or_holds_what_an_engine_could_read_as_an_operator(text: str) -> None:
    for term in [*split_terms(text), *tokenize(text)[1]]:
        assert 0 < len(term) <= MAX_TERM * 3
        assert not re.search(r'[\s"*^:(){}+\-]', term)


@pytest.mark.parametrize("text", ["a" * 1_000_000, "aB" * 500_000, "数" * 1_000_000, "a1" * 500_000, "a " * 500_000])
def test_a_megabyte_is_cut_in_bounded_time(text: str) -> None:
    assert len(split_terms(text)) + len(tokenize(text)[1]) <= len(text) + 2  # quadratic work would not end here
    assert len(make_snippet(text, ["zz", "数"])) < 1_000


TEXTS = st.text("abzABZ019 _-.\n手é\x00", max_size=200) | st.text()


@given(TEXTS)
def test_terms_in_one_text_are_the_terms_in_a_list(text: str) -> None:
    found, listed = tokenize(text)[0], split_terms(text)
    assert (list(found), len(found)) == (listed, len(listed))
    assert not listed or (found[0], found[-1]) == (listed[0], listed[-1])


@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_fts5_splits_the_joined_terms_into_the_same_terms(texts: list[str]) -> None:
    db = apsw.Connection(":memory:")
    db.execute("CREATE VIRTUAL TABLE found USING fts5(body, content = '', tokenize = 'ascii')")
    db.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(found, instance)")
    rows = enumerate(map(join_terms, (tokenize(text)[0] for text in texts)))
    db.executemany("INSERT INTO found (rowid, body) VALUES (?, ?)", rows)
    listed = [(number, term) for number, text in enumerate(texts) for term in split_terms(text)]
    assert db.execute("SELECT doc, term FROM terms ORDER BY doc, offset").fetchall() == listed


@given(st.text("abzABZ019 _-.\n", max_size=12) | st.text(max_size=12))
def test_the_quick_check_finds_the_same_compound_names_as_the_pattern(text: str) -> None:
    assert tokenizer._has_joints(text) == (tokenizer._JOINT.search(text) is not None)


@given(st.lists(st.integers(0, MAX_TERM + 6).map("a".__mul__), max_size=8).map(" ".join))
def test_the_quick_check_finds_the_same_long_words_as_a_split(text: str) -> None:
    assert tokenizer._has_long_word(text) == any(len(word) > MAX_TERM for word in text.split())


def test_what_a_query_asks_for() -> None:
    assert [clause.phrase for clause in parse_query('may "big red" beg* 数据库 x.y').clauses] == [
        Phrase(("may",)),
        Phrase(("big", "red")),
        Phrase(("beg",), prefix=True),
        Phrase(("数据", "据库")),
        Phrase(("x", "y")),
    ]
    assert [clause.required for clause in parse_query('may "big red"').clauses] == [False, True]
    assert parse_query("数").clauses[0].phrase == Phrase(("数",), prefix=True)
    assert parse_query("May 20").together == Phrase(("may", "20"))
    assert parse_query("A股").clauses[0].phrase == Phrase(("a", "股"), prefix=True)
    assert parse_query('"unbalanced').clauses[0].phrase == Phrase(("unbalanced",))
    assert len(parse_query("word " * (MAX_QUERY // 5)).clauses) == 1
    assert parse_query("9fceb02").clauses[0].phrase == Phrase(("9fceb02",), prefix=True)
    assert not any(parse_query(word).clauses[0].phrase.prefix for word in ("facade", "1234567", "defaced", '"9fceb02"'))


@given(st.text(max_size=200))
def test_any_text_is_a_query(text: str) -> None:
    parse_query(text)


def test_a_snippet_shows_the_passage_with_the_most_words_and_marks_them() -> None:
    text = "kestrel " + "filler " * 100 + "the kestrel flies over Seattle in May " + "filler " * 100
    shown = make_snippet(text, ["kestrel", "seattle"])
    assert f"{OPEN}kestrel{CLOSE} flies over {OPEN}Seattle{CLOSE}" in shown
    assert shown.startswith("…")
    assert len(shown) < 260
    assert make_snippet("one\ntwo\tthree", ["two"]) == f"one {OPEN}two{CLOSE} three"
    assert make_snippet("解释goroutine的调度机制", ["调度"]) == f"解释goroutine的{OPEN}调度{CLOSE}机制"
    assert make_snippet("engine and KeyError E", ["e"]) == f"engine and KeyError {OPEN}E{CLOSE}"
    assert make_snippet("nothing here", ["absent"]) == "nothing here"


@pytest.mark.parametrize(
    ("text", "word", "shown"),
    [
        ("请看 Redis缓存 的设置", "redis", "请看 «Redis»缓存 的设置"),
        ("在ABC公司", "abc公司", "在«ABC公司»"),
        ("un café crème", "cafe", "un «café» crème"),
        (normalize("NFD", "un café crème"), "café", normalize("NFD", "un «café» crème")),
        ("die Straße dort", "strasse", "die «Straße» dort"),
        ("ß İ nach İstanbul", "istanbul", "ß İ nach «İstanbul»"),
        ("w Łodzi: Łódź", "lodz", "w Łodzi: «Łódź»"),
        ("Ёлка стоит", "елка", "«Ёлка» стоит"),
        ("η ΙΣΧΎΣ εν", "ισχυς", "η «ΙΣΧΎΣ» εν"),
        ("ﬁn ｖｉａ ﾊﾞｽ", "バス", "ﬁn ｖｉａ «ﾊﾞｽ»"),
        (normalize("NFD", "한국어 바다"), "바다", normalize("NFD", "한국어 «바다»")),
        ("myHTTPServerError", "http", "my«HTTP»ServerError"),
        ("myHTTPServerError", "servererror", "myHTTP«ServerError»"),
        ("an iPhone15, a phone", "iphone", "an «iPhone»15, a phone"),
    ],
)
@pytest.mark.parametrize("around", ["", "天气。ß" * 100])
def test_a_snippet_shows_the_place_in_the_original(text: str, word: str, shown: str, around: str) -> None:
    found = make_snippet(f"{around} {text} {around}", list(parse_query(word).clauses[0].words))
    assert shown in found


@given(st.text(st.sampled_from("aÉßİıłøæ가힣がﾊﾞｽe\u0301\u3099\u1161ё天气A1 ﬁΐᾳ"), max_size=60))
def test_every_word_of_a_text_is_marked_in_it(text: str) -> None:
    for word in (word for clause in parse_query(text[:60]).clauses for word in clause.words):
        assert OPEN in make_snippet(f"天ß {text} 气", [word]), word


def test_endings_are_taken_off_for_recall() -> None:
    assert stem("adopting") == stem("adopted")
    assert {stem("stories"), stem("story")} == {"story"}
    assert {stem("went"), stem("go")} == {"go"}
    assert stem("bus") == "bus"
    assert stem("天气") == "天气"


@pytest.mark.parametrize(
    ("one", "several"),
    [
        *(("Rechnung", "Rechnungen"), ("Universität", "Universitäten"), ("Lehrerin", "Lehrerinnen")),
        *(("journal", "journaux"), ("bureau", "bureaux"), ("facture", "factures")),
        *(("canción", "canciones"), ("ciudad", "ciudades"), ("factura", "facturas")),
    ],
)
def test_plurals_of_german_french_and_spanish_nouns_are_found(one: str, several: str) -> None:
    ctx = quire.open("memory:")
    for word in (one, several):
        ctx.pages.create_detail_page("x", "", f"x {word} y", "mem-0")
        ctx.pages.create_detail_page("code", "", f"get_{word}_id() {word}Id", "mem-0")
    for word in (one, several):
        hits = ctx.find(word, limit=10)
        assert [hit.complete for hit in hits][:2] == [True, True]
        assert len(hits) == 4
        assert len(ctx.find(f'"{word}"', limit=10)) == 2  # quoted: exactly this word
        assert len(ctx.find(f"get_{word}_id", limit=1)) == 1
    assert {stem(word) for word in ["garden", "inner", "faux", "decade", "dad", "evil", "begin"]} == {
        *("garden", "inner", "faux", "decad", "dad", "evil", "begin")
    }
