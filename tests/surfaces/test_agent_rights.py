"""Every attempt of an agent on every page: it succeeds exactly where it is allowed; otherwise nothing changes.

The cells are generated; `agent_rights.py` has the expected results.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from quire import QuireError
from tests.surfaces.agent_cells import Cell, move_cells, page_cells, segment_cells
from tests.surfaces.agent_rights import Leaf, PermissionName
from tests.surfaces.bookcase import TYPES, Bookcase

TALKS: dict[str, tuple[PermissionName, bool]] = {
    "a read-only conversation": ("READ_ONLY", False),
    "a conversation": ("READ_WRITE", False),
    "a managed conversation": ("SYSTEM_MANAGED", False),
    "a quiet conversation": ("READ_WRITE", True),
}
SHARES = (*TALKS, *TYPES)
"""The matrix in parts: conversations, and all segments of each type."""
EVERY = {(False, False): 23, (False, True): 83, (True, False): 301, (True, True): 501}
"""For moves or not, and for changes or not: each of so many cells is in the default run."""


def violations(case: Bookcase, cells: Iterable[Cell], *, keep: bool = True) -> Iterator[str]:
    """Yield the cells with a wrong result, and refused cells that changed something.

    An allowed cell that writes works on a fork. A refused one works on the real context, if it is to `keep` the trace.
    """
    for number, cell in enumerate(cells):
        tried = case.fork() if cell.writes and (cell.allowed or not keep) else case
        before = tried.ctx.seq
        refusal: QuireError | None = None
        try:
            cell.run(tried)
        except QuireError as error:
            refusal = error
        changed = tried.ctx.seq != before
        if (refusal is None) is not cell.allowed:
            yield f"{cell.name}: {'allowed' if refusal is None else refusal}"
        elif cell.missing and "NoSuch" not in f"{type(refusal).__name__} {refusal}":
            yield f"{cell.name}: {refusal}"
        elif changed and (refusal is not None or not cell.writes):
            yield f"{cell.name}: something changed"
        elif tried is not case and number % 10 == 0 and tried.ctx.check():
            yield f"{cell.name}: the context is not sound"


def case_for(share: str) -> Bookcase:
    """Return the context for a part of the matrix."""
    permission, quiet = TALKS.get(share, ("READ_WRITE", False))
    return Bookcase(permission, quiet=quiet)


def cells_of(case: Bookcase, share: str, *, long: bool = False) -> Iterator[Cell]:
    """Yield all cells of a part of the matrix: every operation on its pages, and moves to and from all others."""
    talk = share in TALKS
    pages = [page for page in case.pages if page.place.conversation is talk and (talk or page.place.type == share)]
    for page in pages:
        yield from page_cells(case, page)
    yield from move_cells(sources(pages), targets(case.pages), both=long)
    if talk:
        yield from move_cells(sources(case.pages), targets(pages), both=long)


def sources(pages: Iterable[Leaf]) -> list[Leaf]:
    """Return one page of every kind, state and pin in every segment."""
    found: dict[object, Leaf] = {}
    for page in pages:
        found.setdefault((page.place, page.kind, page.state, page.pinned, page.above_pinned), page)
    return [page for page in found.values() if page.kind not in ("closed folder", "archived folder")]


def targets(pages: Iterable[Leaf]) -> list[Leaf]:
    """Return every kind of folder in every segment, and a leaf of each."""
    found: dict[object, Leaf] = {}
    for page in pages:
        state = (page.root, page.state, page.pinned) if page.folder else ()
        found.setdefault((page.place, page.marked, state), page)
    return [page for page in found.values() if page.place.conversation or page.place.holds_pins]


def brief(cells: Iterable[Cell]) -> Iterator[Cell]:
    """Yield some of the cells: fewer changes than refusals, and few moves."""
    numbers: Counter[tuple[bool, bool]] = Counter()
    for cell in cells:
        kind = (cell.name.startswith("moving"), cell.allowed and cell.writes)
        if numbers[kind] % EVERY[kind] == 0:
            yield cell
        numbers[kind] += 1


@pytest.mark.parametrize("share", SHARES)
def test_an_agent_may_do_exactly_what_its_rights_say(share: str, request: pytest.FixtureRequest) -> None:
    case = case_for(share)
    before = case.digest()
    is_long = request.config.getoption("--long")
    every = cells_of(case, share, long=is_long)
    cells = list(every if is_long else brief(every))
    assert list(violations(case, cells)) == []
    assert case.digest() == before
    assert case.ctx.check() == []
    assert {cell.allowed for cell in cells} == {True, False}


@pytest.mark.parametrize("manage", [False, True])
def test_whole_segments_are_for_agents_that_manage_them(manage: bool) -> None:
    case = Bookcase("SYSTEM_MANAGED", manage=manage)
    before = case.digest()
    assert list(violations(case, segment_cells(case))) == []
    assert case.digest() == before
