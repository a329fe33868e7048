"""Records and the state of one context: plan a change, commit it, apply it."""

from collections.abc import Iterable, Iterator

from quire.model.pages import DetailPage
from quire.storage.contract import Family
from quire.storage.five_calls import register_page_describer
from quire.storage.folder import Lookup, register_describer


def _describe(
    seq: int, head: bytes, lookup: Lookup, changed: Iterable[tuple[Family, int]]
) -> Iterator[tuple[str, bytes | None]]:
    from quire.core.page_files import describe  # late: only a folder has readable files

    return describe(seq, head, lookup, changed)


def _describe_page(seq: int, head: bytes, lookup: Lookup, key: int) -> DetailPage | None:
    from quire.core.page_files import describe_page  # late: only a backend with five calls has items

    return describe_page(seq, head, lookup, key)


register_describer(_describe)
register_page_describer(_describe_page)
