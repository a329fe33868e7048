"""A small context in one read, for those who look at all of it again and again, as an examination does."""

from typing import TYPE_CHECKING, Final

from quire.storage.base import Commit, Put
from quire.storage.memory import MemoryStorage
from quire.storage.postgres.schema import CODES

if TYPE_CHECKING:
    from quire.storage.postgres.session import Session

_MOST_RECORDS: Final = 2_000
_MOST_BYTES: Final = 4 << 20
_WHOLE: Final = f"""SELECT version, head, family, key, value, grp, ord FROM {{q}}.context
    LEFT JOIN {{q}}.record ON record.context = context.id
    WHERE tenant = %s AND name = %s AND NOT EXISTS (SELECT 1 FROM {{q}}.shared WHERE shared.id = context.id)
    AND NOT EXISTS (SELECT 1 FROM {{q}}.gone WHERE gone.context = context.id) AND (
        SELECT count(*) <= {_MOST_RECORDS} AND coalesce(sum(octet_length(value)), 0) <= {_MOST_BYTES}
        FROM (SELECT value FROM {{q}}.record WHERE record.context = context.id LIMIT {_MOST_RECORDS + 1}) AS few)"""
"""All of a context with its head, unless it is large, reads from another one or hides what its forks still read."""
_FAMILIES: Final = {code: family for family, code in CODES.items()}


def whole(session: "Session", tenant: str, context: str) -> MemoryStorage | None:
    """The context as it is at one moment, in memory; None if it is large, shares records, or does not exist."""
    rows = session.read(_WHOLE, (tenant, context))
    if not rows:
        return None
    writes = [
        Put(_FAMILIES[code], key, value, group, order)
        for _, _, code, key, value, group, order in rows
        if code in _FAMILIES
    ]
    copy = MemoryStorage()
    copy.commit(context, Commit(0, rows[0][0], rows[0][1], writes))
    return copy
