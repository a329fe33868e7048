"""Runs statements with encoded values, and keeps them prepared.

A cursor of psycopg looks for the type of every value and of every column each time. A commit always has the same types,
so it goes to libpq directly. This takes less than half of the time in the client.
"""

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.pq.abc import PGresult

INT2, INT8, BYTEA, TEXT = 21, 20, 17, 25
"""Numbers of types, which are the same in every database."""
ARRAYS: Final = {INT2: 1005, INT8: 1016, BYTEA: 1001}
"""The types of arrays, by the type of their values."""
_NULL: Final = b"\xff\xff\xff\xff"
_LENGTH, _ARRAY = Struct("!i"), Struct("!iiIii")
pack_int2, pack_int8 = Struct("!h").pack, Struct("!q").pack

Value = bytes | None
Sql = tuple[str, Sequence[Value], Sequence[int]]
"""A statement with `$1`, `$2` …, its values in binary form, and the numbers of their types."""


def pack_array(kind: int, values: Sequence[Value]) -> bytes:
    """Return an array of encoded values."""
    parts = [_ARRAY.pack(1, None in values, kind, len(values), 1)]
    for value in values:
        parts += (_NULL,) if value is None else (_LENGTH.pack(len(value)), value)
    return b"".join(parts)


def unpack_int(value: bytes | None) -> int:
    """Return a whole number."""
    return int.from_bytes(value or b"", signed=True)


_MAX_PREPARED: Final = 200
"""Statements on one connection. Further ones are not prepared."""


class PreparedStatements:
    """The prepared statements of one connection."""

    def __init__(self) -> None:
        from psycopg import generators  # late: without the driver, quire can be imported
        from psycopg.errors import error_from_result
        from psycopg.pq import ExecStatus

        self._names: dict[str, bytes] = {}
        self._uses: dict[str, int] = {}
        self._execute = generators.execute
        self._to_error = error_from_result
        self._successes = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)

    def run(self, db: "Connection[Any]", sql: Sql) -> "PGresult":
        """Return the result of a statement, in binary form. Raises the driver's errors.

        A statement is prepared after `prepare_threshold` uses; never, if the connection has no threshold.
        """
        text, values, types = sql
        name = self._names.get(text) or self._prepare(db, text, types)
        formats = (1,) * len(values)
        if name is None:
            db.pgconn.send_query_params(text.encode(), values, types, formats, 1)
        else:
            db.pgconn.send_query_prepared(name, values, formats, 1)
        return self._receive(db)

    def _prepare(self, db: "Connection[Any]", text: str, types: Sequence[int]) -> bytes | None:
        """Prepare a statement that was used often enough, and return its name."""
        threshold = db.prepare_threshold
        if threshold is None or len(self._names) == _MAX_PREPARED:
            return None
        uses = self._uses.pop(text, 0) + 1
        if uses <= threshold:
            if len(self._uses) > _MAX_PREPARED:
                self._uses.clear()
            self._uses[text] = uses
            return None
        name = f"quire_{len(self._names)}".encode()
        db.pgconn.send_prepare(name, text.encode(), types)
        self._receive(db)
        self._names[text] = name
        return name

    def _receive(self, db: "Connection[Any]") -> "PGresult":
        """Wait for the result of what was sent."""
        result: PGresult = db.wait(self._execute(db.pgconn))[-1]
        if result.status not in self._successes:
            raise self._to_error(result)
        return result
