"""File names for anything: no name, however hostile, leaves its folder or meets another on any file system."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
)
_MAX = 120


def file_name(name: str) -> str:
    """A safe name that is the text itself when it is plain: lower-case letters, digits, `_` and `-`.

    Everything else is written as `%` and two hex digits a byte, capitals too, so that names stay apart where case does
    not count. A long one is cut and closed by a hash.
    """
    parts = [char if char in _PLAIN else "".join(f"%{byte:02x}" for byte in char.encode()) for char in name]
    if name in _RESERVED or not name:
        parts.insert(0, "%")
    text = "".join(parts)
    if len(text) > _MAX:
        from hashlib import sha256  # here, because few names are so long and importing it is slow

        text = f"{text[: _MAX - 34]}%-{sha256(name.encode()).hexdigest()[:32]}"
    return text


def plain_name(file: str) -> str | None:
    """The text whose file name this is; None if it is that of none, or of one that was cut."""
    if _PLAIN.issuperset(file) and 0 < len(file) <= _MAX and file not in _RESERVED:
        return file
    first, *others = file.split("%")
    if not first and others and (others[0] in _RESERVED or others == [""]):
        return others[0]
    try:
        parts = (bytes.fromhex(part[:2]) + part[2:].encode() for part in others)
        name = (first.encode() + b"".join(parts)).decode()
    except ValueError:
        return None
    return name if file_name(name) == file else None
