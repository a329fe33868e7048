"""Shared parts of the rule tests: a small context, and a check that a refused call changes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quire import ContextSystem, InvalidOperation, Permission, QuireError, Segment, SegmentType
from tests.clocks import SteppingClock

LONGEST_ERROR = 600
"""Characters: a model reads errors too, and pays for their length."""

SEGMENTS = (
    Segment(id="sys", name="System", type=SegmentType.SYSTEM, permission=Permission.READ_ONLY),
    Segment(id="mem", name="Memory"),
    Segment(id="usr", name="Conversation", type=SegmentType.USER),
)


class WordCounter:
    """Count words: fast, and with a result for every text."""

    name = "words"
    exact = True

    def count(self, text: str) -> int:
        return len(text.split())


def new_system(**options: Any) -> ContextSystem:
    """Return a system without segments, with the tests' clock and counter."""
    defaults: dict[str, Any] = {"clock": SteppingClock(), "counter": WordCounter()}
    return ContextSystem(**defaults | options)


def new_book(**options: Any) -> ContextSystem:
    """Return a system with the segments sys, mem and usr."""
    system = new_system(**options)
    for segment in SEGMENTS:
        system.add_segment(segment)
    return system


def leaf(system: ContextSystem, name: str = "leaf", parent: str = "mem-0", detail: str = "") -> str:
    """Create a leaf."""
    return system.create_detail_page(name, "", detail, parent)


def folder(system: ContextSystem, name: str = "folder", parent: str = "mem-0") -> str:
    """Create a folder."""
    return system.create_contents_page(name, "", parent)


def leaves(system: ContextSystem, count: int, parent: str = "mem-0") -> list[str]:
    """Create several leaves."""
    return [leaf(system, f"leaf {number}", parent) for number in range(count)]


def listed(system: ContextSystem, index: str) -> list[str]:
    """Return the indices of a folder's children."""
    return [page.index for page in system.children(index)]


def everything(system: ContextSystem) -> tuple[object, ...]:
    """Return everything that a call can change, as a value."""
    return system.marshal(), list(system.history()), system.seq, system.check()


@contextmanager
def refused(
    system: ContextSystem, kind: type[QuireError] = InvalidOperation, *names: str
) -> Iterator[pytest.ExceptionInfo[QuireError]]:
    """Check that the block raises this error with a short text that has all `names`, and that nothing changed."""
    before = everything(system)
    with pytest.raises(kind) as caught:
        yield caught
    assert everything(system) == before
    text = str(caught.value)
    assert 0 < len(text) < LONGEST_ERROR
    assert caught.value.code != "error"
    for name in names:
        assert name in text
