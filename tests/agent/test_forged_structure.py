"""Hostile text in every place where other text can enter: an oracle finds nothing that quire did not write."""

import os
import random

import pytest

from quire.agent import listing
from quire.model.messages import messages_to_text
from quire.search import recall
from quire.view import draw
from quire.view.escaping import Escaping
from quire.windows import render
from tests.agent.forged_views import check_round

CASES = 100_000
SLICE = 600


def test_nothing_in_a_view_speaks_in_anothers_name(request: pytest.FixtureRequest) -> None:
    """With --long 100,000 hostile lines are placed, otherwise a slice."""
    cases = CASES if request.config.getoption("--long") else SLICE
    seed = int(os.environ.get("QUIRE_SEED") or random.SystemRandom().randrange(1 << 32))  # a failure names its seed
    placed = 0
    while placed < cases:
        placed += check_round(seed, most=3 if seed % 4 == 0 else 300)
        seed += 1


@pytest.mark.parametrize("seed", range(20))
def test_the_same_seeds_stay_clean(seed: int) -> None:
    assert check_round(seed) > 0


# Proof that the oracle finds what is not escaped in one place

OFF = {
    "key": (Escaping, "escape_key", lambda self, value: value),
    "names": (Escaping, "escape_line", lambda self, value: value),
    "bodies": (Escaping, "escape_lines", lambda self, value: self.escape_key(value)),
    "ids": (Escaping, "escape_id", lambda self, value: value),
    "urls": (Escaping, "escape_url", lambda self, value: value),
    "arguments": (Escaping, "escape_json", lambda self, value: value),
    "messages": (Escaping, "escape_message", lambda self, value: value),
    "speakers": (draw, "quote_messages", messages_to_text),
    "answers": (listing, "indent_lines", str),
    "windows": (render, "hang_lines", str),
    "recall": (recall, "hang_lines", str),
}


@pytest.mark.parametrize("place", OFF)
def test_escaping_that_is_off_in_one_place_is_found(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, off = OFF[place]
    monkeypatch.setattr(owner, name, off)
    with pytest.raises(AssertionError, match="replay with check_round"):
        _check_rounds(60)


def _check_rounds(number: int) -> None:
    for seed in range(number):
        check_round(seed)
