"""Values in PostgreSQL's binary form."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

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
