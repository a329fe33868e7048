"""The passage that is shown of a page holds what was found."""

import pytest

from quire.search.snippets import LENGTH, snippet


@pytest.mark.parametrize("gap", range(LENGTH - 30, LENGTH + 5))
@pytest.mark.parametrize("before", [" ", "·"])
def test_what_was_found_is_not_cut_off_to_begin_and_end_between_words(gap: int, before: str) -> None:
    filler = ("ab cd " * LENGTH)[: gap - 1]
    text = f"{filler}{before}kestrel {filler}{before}kestrel {filler}"
    assert "«kestrel»" in snippet(text, ["kestrel"])
