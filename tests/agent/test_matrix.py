"""Every attempt of an agent on every page: it succeeds exactly where the contract allows it; otherwise nothing changes.
The cells are generated; `oracle.py` has the expected results, from the contract alone.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from quire import QuireError
from quire.agent import gate
from quire.agent.gate import Gate, VisibleReader
from quire.core.engine import Transaction
from quire.core.records import PageRecord
from quire.model.pages import Permission
from tests.agent.bookcase import TYPES, Bookcase
from tests.agent.cells import Cell, move_cells, page_cells, segment_cells
from tests.agent.oracle import Leaf, PermissionName
from tests.marks import broad

TALKS: dict[str, tuple[PermissionName, bool]] = {
    "a read-only conversation": ("READ_ONLY", False),
    "a conversation": ("READ_WRITE", False),
    "a managed conversation": ("SYSTEM_MANAGED", False),
    "a quiet conversation": ("READ_WRITE", True),
}
SHARES = (*TALKS, *TYPES)
"""The matrix in parts: conversations, and all segments of each type."""
BRIEF = [share if share in ("a conversation", "CUSTOM") else broad(share)[0] for share in SHARES]
LEAST = 19_000


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    """Whether every move is tried in both ways, and more of the allowed attempts are checked afterwards."""
    return bool(request.config.getoption("--long"))


def violations(case: Bookcase, cells: Iterable[Cell], *, always_held: bool = False) -> Iterator[str]:
    """Yield the cells with a result against the contract, and refused cells that changed something.

    The changes of an allowed cell are dropped; a refused one works on the real store.
    """
    for cell in cells:
        stored = case.version()
        with held(case, cell.writes and (cell.allowed or always_held)):
            before = case.ctx.seq
            refusal: QuireError | None = None
            try:
                cell.run(case)
            except QuireError as error:
                refusal = error
            changed = case.ctx.seq != before
        if (refusal is None) is not cell.allowed:
            yield f"{cell.name}: {'allowed' if refusal is None else refusal}"
        elif cell.missing and "NoSuch" not in f"{type(refusal).__name__} {refusal}":
            yield f"{cell.name}: {refusal}"
        elif changed and (refusal is not None or not cell.writes):
            yield f"{cell.name}: something changed"
        if case.version() != stored:
            yield f"{cell.name}: the stored version moved on"


@contextmanager
def held(case: Bookcase, wanted: bool) -> Iterator[None]:
    """Collect all writes in a transaction, and drop them."""
    work = Transaction(case.ctx.pages._engine) if wanted else None
    try:
        yield
    finally:
        if work is not None:
            work.discard()


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


@pytest.mark.parametrize("share", BRIEF)
def test_an_agent_may_do_exactly_what_the_contract_says(share: str, long: bool) -> None:
    case = case_for(share)
    before = case.digest()
    cells = list(cells_of(case, share, long=long))
    assert list(violations(case, cells)) == []
    assert case.digest() == before
    assert case.ctx.check() == []
    assert {cell.allowed for cell in cells} == {True, False}


@pytest.mark.parametrize("manage", [False, True])
@pytest.mark.parametrize("talk", TALKS)
def test_whole_segments_are_for_agents_that_manage_them(talk: str, manage: bool) -> None:
    permission, quiet = TALKS[talk]
    case = Bookcase(permission, manage=manage, quiet=quiet)
    before = case.digest()
    assert list(violations(case, segment_cells(case))) == []
    assert case.digest() == before


def test_the_matrix_has_as_many_cells_as_it_promises() -> None:
    assert sum(1 for share in SHARES for _ in cells_of(case_for(share), share)) >= LEAST


@pytest.mark.parametrize("share", BRIEF)
def test_what_is_allowed_leaves_a_sound_context(share: str, long: bool) -> None:
    case = case_for(share)
    allowed = [cell for cell in cells_of(case, share, long=long) if cell.allowed and cell.writes]
    for cell in allowed[:: max(1, len(allowed) // (60 if long else 8))]:
        with held(case, wanted=True):
            cell.run(case)
            assert case.ctx.check() == [], cell.name


# Proof that the matrix can fail


@pytest.mark.slow
def test_the_matrix_sees_a_gate_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(
        self: Gate, reader: VisibleReader, operation: str, index: object, *, whole_subtree: bool | None = None
    ) -> PageRecord:
        return reader.require_page(index)

    monkeypatch.setattr(Gate, "page", opened)
    found = broken("CUSTOM")
    assert any("update_page on custom-read-only" in line for line in found)
    assert any("pinned" in line for line in found)
    assert all(line.endswith("allowed") for line in found)
    assert any("moving" in line for line in found)
    assert len(found) > 1_000


@pytest.mark.slow
def test_the_matrix_sees_a_permission_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = gate._RULES["archive"]
    more = rule._replace(allowed=(*rule.allowed, Permission.READ_ONLY))
    monkeypatch.setattr(gate, "_RULES", {**gate._RULES, "archive": more})
    found = broken("TOOL")
    assert found
    assert all("archive" in line and "READ_ONLY" in line for line in found)


@pytest.mark.slow
def test_the_matrix_sees_eyes_that_see_private_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VisibleReader, "_is_private", lambda self, number: False)
    monkeypatch.setattr(VisibleReader, "segment", lambda self, number: self._reader.segment(number))
    found = broken("SYSTEM")
    assert found
    assert all("PRIVATE" in line for line in found)


@pytest.mark.slow
def test_the_matrix_sees_eyes_that_see_marked_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VisibleReader, "page", lambda self, key: self._reader.page(key))
    found = broken("a conversation")
    assert any(line.startswith("read_page on usr-7") for line in found)


def broken(share: str) -> list[str]:
    """Return the violations in one part of the matrix, with a sample of the moves. No change is kept."""
    case = case_for(share)
    cells = [cell for n, cell in enumerate(cells_of(case, share)) if "moving" not in cell.name or n % 50 == 0]
    return list(violations(case, cells, always_held=True))
