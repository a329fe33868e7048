"""Text that can be stored: one-line fields, bodies and meta."""

import json
import unicodedata
from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given

from quire import InvalidValue
from quire.model.text import (
    MAX_META_BYTES,
    check_one_line,
    check_text,
    clip_at_word,
    decode_meta,
    encode_meta,
    format_json,
)

LINE_BREAKS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("line_break", LINE_BREAKS)
def test_a_line_break_becomes_one_space(line_break: str) -> None:
    assert check_one_line(f"a{line_break}b", "name", 200) == "a b"


@given(st.text(max_size=50))
def test_one_line_is_one_line_or_refused(text: str) -> None:
    try:
        line = check_one_line(text, "name", 200)
    except InvalidValue:
        assert any(unicodedata.category(char) in ("Cc", "Cs") for char in text)
        return
    assert len((line + "x").splitlines()) == 1
    assert not any(unicodedata.category(char) in ("Cc", "Cs") and char != "\t" for char in line)
    assert check_one_line(line, "name", 200) == line


CONTROL = [chr(code) for code in (*range(9), *range(14, 28), 0x1F, 0x7F, *range(0x80, 0x85), 0x9F)]


@pytest.mark.parametrize("char", CONTROL)
def test_other_control_characters_are_refused(char: str) -> None:
    with pytest.raises(InvalidValue, match="control character"):
        check_one_line(f"a{char}b", "name", 200)


def test_the_limit_counts_characters_and_is_named() -> None:
    assert check_one_line("语" * 200, "name", 200) == "语" * 200
    for length in (201, 1_000, 10_000_000):
        with pytest.raises(InvalidValue, match="200") as caught:
            check_one_line("x" * length, "name", 200)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000"])
def test_an_empty_line_is_refused_where_it_must_not_be(text: str) -> None:
    assert check_one_line(text, "description", 200) == text.replace("\n", " ")
    with pytest.raises(InvalidValue, match="name"):
        check_one_line(text, "name", 200, empty=False)


@pytest.mark.parametrize("value", [None, 5, b"text", ["text"], 1.5])
def test_what_is_no_text_is_refused_with_its_type(value: object) -> None:
    with pytest.raises(InvalidValue, match=type(value).__name__):
        check_one_line(value, "name", 200)
    with pytest.raises(InvalidValue, match=type(value).__name__):
        check_text(value)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\ude00\ud83d"])
def test_a_lone_surrogate_is_no_text(text: str) -> None:
    with pytest.raises(InvalidValue, match="surrogate"):
        check_text(text)
    with pytest.raises(InvalidValue, match="surrogate"):
        check_one_line(text, "name", 200)


@given(st.text())
def test_a_body_is_any_text_as_it_is(text: str) -> None:
    try:
        assert check_text(text) == text
    except InvalidValue:
        assert any("\ud800" <= char <= "\udfff" for char in text)


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(words, values, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(words, plain, max_size=5))
def test_meta_of_plain_values_comes_back_as_it_was(meta: dict[str, object]) -> None:
    assert decode_meta(encode_meta(meta)) == meta


@given(plain)
def test_readable_json_is_laid_out_as_ever(value: object) -> None:
    assert format_json(value) == json.dumps(value, ensure_ascii=False, indent=1).encode()


@pytest.mark.parametrize(
    "meta",
    [
        [1],
        "text",
        5,
        {1: "a"},
        {"a": (1, 2)},
        {"a": {1, 2}},
        {"a": object()},
        {"a": b"bytes"},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": datetime(2025, 2, 6, tzinfo=UTC)},
        {"a": 2**70},
        {"a": "\ud800"},
        {"\ud800": 1},
        {"a": {1: 2}},
        {"a": "x" * MAX_META_BYTES},
    ],
)
def test_meta_that_would_not_come_back_as_it_was_is_refused(meta: object) -> None:
    with pytest.raises(InvalidValue, match="meta") as caught:
        encode_meta(meta)
    assert len(str(caught.value)) < 400


def test_meta_nested_without_end_is_refused() -> None:
    endless: dict[str, object] = {}
    endless["a"] = endless
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for meta in (endless, deep):
        with pytest.raises(InvalidValue, match="meta"):
            encode_meta(meta)


@pytest.mark.parametrize(
    ("text", "most", "left"),
    [
        ("请查订单ORD-1026的状态", 10, "请查订单"),
        ("请查订单ORD-1026的状态", 12, "请查订单ORD-1026"),
        ("read /tmp/out/7.log now", 12, "read"),
        ("It is ORD-1026. Good.", 14, "It is ORD-1026"),
        ("costs 3,500元", 8, "costs"),
        ("costs 3, 500", 7, "costs 3"),
        ("at 12:30 then", 5, "at"),
        ("mail ann@example.com", 8, "mail"),
        ("word", 4, "word"),
        ("x" * 50, 10, ""),
        ("价格是", 2, "价格"),
        ("a b", 0, ""),
    ],
)
def test_nothing_is_cut_in_two(text: str, most: int, left: str) -> None:
    assert clip_at_word(text, most) == left


@given(st.text(alphabet="aB1-./,: 订单", max_size=30), st.integers(0, 30))
def test_what_is_clipped_is_a_beginning_and_not_too_long(text: str, most: int) -> None:
    short = clip_at_word(text, most)
    assert text.startswith(short)
    assert len(short) <= most or short == text
