"""The snippet of a page contains the match."""

import pytest

from quire.search.page_text import SNIPPET_LENGTH, make_snippet


@pytest.mark.parametrize("gap", range(SNIPPET_LENGTH - 30, SNIPPET_LENGTH + 5))
@pytest.mark.parametrize("before", [" ", "·"])
def test_what_was_found_is_not_cut_off_to_begin_and_end_between_words(gap: int, before: str) -> None:
    filler = ("ab cd " * SNIPPET_LENGTH)[: gap - 1]
    text = f"{filler}{before}kestrel {filler}{before}kestrel {filler}"
    assert "«kestrel»" in make_snippet(text, ["kestrel"])
