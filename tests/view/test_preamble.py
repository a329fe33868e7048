"""The preamble and the key: short, and of a size that is known beforehand."""

from quire.tokens import VocabularyCounter
from quire.view.draw import OPENING
from quire.view.lines import FOLDED, block_head
from quire.view.maker import NO_RESULT
from quire.view.preamble import (
    HEAD_TOKENS,
    NO_RESULT_TOKENS,
    OPENING_TOKENS,
    PREAMBLE_TOKENS,
    all_words,
    derived_key,
    preamble,
)


def test_every_key_makes_a_preamble_and_a_head_of_the_same_size() -> None:
    count = VocabularyCounter().count
    keys = [f"{word}-{number}" for word in all_words() for number in (100, 357, 999)]
    assert {count(preamble(key)) for key in keys} == {PREAMBLE_TOKENS}
    assert {count(block_head(key, FOLDED)) for key in keys} == {HEAD_TOKENS}
    assert PREAMBLE_TOKENS <= 250
    assert (count(NO_RESULT), count(OPENING)) == (NO_RESULT_TOKENS, OPENING_TOKENS)


def test_a_key_belongs_to_its_context() -> None:
    assert derived_key(b"one") == derived_key(b"one")
    assert len({derived_key(bytes([number])) for number in range(200)}) > 150
