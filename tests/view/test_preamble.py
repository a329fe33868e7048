"""The preamble and the key: short, and of a known size."""

import os
import re

import pytest

import quire
from quire.model.tokens import VocabularyCounter
from quire.view.draw import FOLDED, NO_RESULT, OPENING, block_head
from quire.view.preamble import (
    HEAD_TOKENS,
    KEY_WORDS,
    MORE_WORDS,
    NO_RESULT_TOKENS,
    OPENING_TOKENS,
    PREAMBLE_TOKENS,
    SHORT,
    SHORT_TOKENS,
    derived_key,
    fill_preamble,
    known_tokens,
    new_key,
)


def test_every_key_makes_a_preamble_and_a_head_of_the_same_size() -> None:
    count = VocabularyCounter().count
    words = (*KEY_WORDS, *MORE_WORDS)
    pairs = list(zip(words, words[7:] + words[:7], strict=True)) + list(zip(words, reversed(words), strict=True))
    new = [f"{first} {second}-{number}" for first, second in pairs for number in (100, 357, 999)]
    derived = [f"{word}-{number}" for word in KEY_WORDS for number in (100, 357, 999)]
    for keys, tokens in ((new, (PREAMBLE_TOKENS, SHORT_TOKENS, HEAD_TOKENS)), (derived, known_tokens("amber-417"))):
        assert {known_tokens(key) for key in keys} == {tokens}
        texts = ((fill_preamble(key), fill_preamble(key, SHORT), block_head(key, FOLDED)) for key in keys)
        assert {tuple(map(count, each)) for each in texts} == {tokens}
    assert PREAMBLE_TOKENS <= 250
    assert (count(NO_RESULT), count(OPENING)) == (NO_RESULT_TOKENS, OPENING_TOKENS)


def test_a_key_belongs_to_its_context() -> None:
    assert (derived_key(b"one"), derived_key(b"two")) == ("diamond-674", "jade-562")  # as 0.1.0 derived them
    assert new_key(b"one") == new_key(b"one")
    assert known_tokens(new_key(b"one")) == (PREAMBLE_TOKENS, SHORT_TOKENS, HEAD_TOKENS)


def test_a_new_key_is_one_of_many() -> None:
    words = {*KEY_WORDS, *MORE_WORDS}
    assert len(words) == len(KEY_WORDS) + len(MORE_WORDS) == 163
    assert len(words) ** 2 * 900 > 20_000_000  # 55,800 in 0.1.0
    keys = {new_key(os.urandom(8)) for _ in range(2_000)}
    assert len(keys) > 1_990
    assert {re.fullmatch(r"([a-z]+) ([a-z]+)-([1-9]\d\d)", key) is not None for key in keys} == {True}
    assert len({key.split()[0] for key in keys}) > 150 < len({key.split()[1].split("-")[0] for key in keys})


@pytest.mark.parametrize("key", ["kestrel", "amber-41", "amber fox-4171", "amber fox moon-417", "amber any-417"])
def test_the_size_of_another_key_is_not_known(key: str) -> None:
    assert known_tokens(key) is None


def test_the_key_is_stored_and_shared_with_forks() -> None:
    ctx = quire.open("memory:", key="kestrel")
    ctx.user("Hello")
    view = ctx.render().openai()
    assert "kestrel" in view[0]["content"]
    assert ctx.fork("other").render().openai() == view
    assert quire.open(ctx.pages.storage, ctx.name, key="falcon").render().openai() == view


def test_two_contexts_have_keys_of_their_own() -> None:
    said = {quire.open("memory:").render().messages[0].content for _ in range(8)}
    assert len(said) > 1


def test_rolling_everything_back_keeps_the_key() -> None:
    ctx = quire.open("memory:", key="kestrel")
    ctx.user("Hello")
    ctx.rollback(1)
    assert "kestrel" in str(ctx.render().openai())


def test_the_developer_can_say_it_otherwise_or_not_at_all() -> None:
    ctx = quire.open("memory:", key="kestrel", preamble="Our lines carry {key}. 折叠的行带有 {key}。")
    ctx.user("Hello")
    view = ctx.render()
    assert view.messages[0].content == "Our lines carry kestrel. 折叠的行带有 kestrel。"
    assert view.by_kind()["preamble"] == VocabularyCounter().count(str(view.messages[0].content)) + 4
    silent = quire.open("memory:", preamble="")
    silent.user("Hello")
    assert [message.role for message in silent.render().messages] == ["user"]


def test_a_small_window_gets_few_words() -> None:
    ctx = quire.open("memory:", budget=4_000)
    ctx.user("Hello")
    small = ctx.render()
    assert small.by_kind()["preamble"] == SHORT_TOKENS + 4
    ctx.budget = 8_000
    assert ctx.render().by_kind()["preamble"] == PREAMBLE_TOKENS + 4
    ctx.budget = 4_000
    assert ctx.render().openai() == small.openai()
