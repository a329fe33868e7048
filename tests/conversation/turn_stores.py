"""The stores on which turns are tested."""

from quire import Library
from tests.marks import long, servers

SHARED = ["sqlite", *long("file"), *servers("postgres", "s3")]


def texts(library: Library, name: str = "talk") -> list[str]:
    """Return the texts of a conversation, after a check of its context."""
    with library.open(name) as ctx:
        assert ctx.check() == []
        return [message.text for message in ctx.messages()]
