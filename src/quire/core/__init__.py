"""Records and the state of one context: plan a change, commit it, apply it."""

from collections.abc import Iterable, Iterator

from quire.storage.contract import Family
from quire.storage.folder import Lookup, register_describer


def _describe(
    seq: int, head: bytes, lookup: Lookup, changed: Iterable[tuple[Family, int]]
) -> Iterator[tuple[str, bytes | None]]:
    from quire.core.page_files import describe  # late: only a few storages show pages

    return describe(seq, head, lookup, changed)


register_describer(_describe)
