"""The preamble and the key: short, and of a known size."""

import quire
from quire.model.tokens import VocabularyCounter
from quire.view.draw import FOLDED, NO_RESULT, OPENING, block_head
from quire.view.preamble import (
    HEAD_TOKENS,
    KEY_WORDS,
    NO_RESULT_TOKENS,
    OPENING_TOKENS,
    PREAMBLE_TOKENS,
    SHORT,
    SHORT_TOKENS,
    derived_key,
    fill_preamble,
)


def test_every_key_makes_a_preamble_and_a_head_of_the_same_size() -> None:
    count = VocabularyCounter().count
    keys = [f"{word}-{number}" for word in KEY_WORDS for number in (100, 357, 999)]
    assert {count(fill_preamble(key)) for key in keys} == {PREAMBLE_TOKENS}
    assert {count(fill_preamble(key, SHORT)) for key in keys} == {SHORT_TOKENS}
    assert {count(block_head(key, FOLDED)) for key in keys} == {HEAD_TOKENS}
    assert PREAMBLE_TOKENS <= 250
    assert (count(NO_RESULT), count(OPENING)) == (NO_RESULT_TOKENS, OPENING_TOKENS)


def test_a_key_belongs_to_its_context() -> None:
    assert derived_key(b"one") == derived_key(b"one")
    assert len({derived_key(bytes([number])) for number in range(200)}) > 150


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
