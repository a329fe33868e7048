"""Access to the stored results of the peers."""

from collections.abc import Mapping
from typing import Any

from bench.peers.processes import ERROR
from bench.peers.registry import OURS, PEERS, SEARCHERS, Entry

Cell = Mapping[str, Any]


class Measured:
    """The stored results of all peers."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        self._cells = {(cell["work"], cell["peer"], cell["case"]): cell for cell in kept["cells"]}
        self.versions: Mapping[str, str] = kept["versions"]
        self.machine: Mapping[str, Any] = kept.get("machine", {})
        self.minutes: float = kept.get("minutes", 0)

    def get(self, work: str, peer: str, case: str) -> Cell | None:
        """Return one cell; None if it was not measured or failed."""
        cell = self._cells.get((work, peer, case))
        return None if cell is None or ERROR in cell else cell

    def error(self, work: str, peer: str, case: str) -> str | None:
        """Return why a cell has no figures; None if it has figures or the peer does not take part."""
        for key in ((work, peer, case), (work, peer, case.split("/")[0]), (work, peer, "")):
            if ERROR in (cell := self._cells.get(key, {})):
                return str(cell[ERROR])
        return None

    def cases(self, work: str) -> list[str]:
        """Return the cases of a workload in which quire was measured."""
        return [case for a_work, peer, case in self._cells if a_work == work and peer == OURS]

    def entries(self, work: str) -> list[Entry]:
        """Return the peers of a workload that were measured or failed, in table order."""
        measured = {peer for a_work, peer, _ in self._cells if a_work == work}
        entries = SEARCHERS if work == "search" else PEERS
        return [entry for entry in entries if entry.name in measured and work in entry.works]


_TURNS = 100
"""The 99th percentile of fewer turns would be the slowest of them."""


def slow_ratio(cell: Cell) -> float | None:
    """Return the 99th percentile of turns as a multiple of the median of the raw floor; None if there are too few."""
    if cell.get("turns", 0) < _TURNS:
        return None
    ratio: float = cell["slowest"] / cell["milliseconds"] * cell["ratio"]
    return ratio


def case_name(case: str) -> str:
    """Return a case in words."""
    first, _, budget = case.partition("/")
    told = f"{int(first):,} messages" if first.isdigit() else first
    return f"{told}, {int(budget) // 1_000}k" if budget else told
