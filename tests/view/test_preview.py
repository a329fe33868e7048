"""Folds of a preview, which are not written."""

from collections.abc import Iterator
from typing import Any

import pytest

import quire
from quire.core.records import PageRecord
from quire.core.state import State


def test_an_imagined_chapter_is_named_by_its_ends_and_what_lies_between_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = quire.open("memory:", budget=2_000)
    for turn in range(150):
        context.user(f"Question {turn}: " + "what about the flight? " * 8)
        context.render()
    small = context.render(max_tokens=300)
    spans = [page.index for page in small.pages if "…" in page.index]
    read = 0
    members = State.members

    def counted(state: State, *arguments: Any, **options: Any) -> Iterator[PageRecord]:
        nonlocal read
        for page in members(state, *arguments, **options):
            read += 1
            yield page

    monkeypatch.setattr(State, "members", counted)
    again = context.render(max_tokens=301)
    assert [page.index for page in again.pages if "…" in page.index] == spans
    assert spans[0].startswith("usr-1…usr-")
    assert 0 < read < 400  # a thousand if everything between is read
