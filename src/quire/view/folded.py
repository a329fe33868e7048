"""What a fold did."""

from typing import NamedTuple


class Account(NamedTuple):
    """Where the facts of folded text are: in the summary, or on a page that a query of the fact finds.

    `unread` are the characters of very long texts whose facts were not listed one by one; find reaches them too.
    """

    kept: int
    reachable: int
    lost: int = 0
    unread: int = 0

    def __add__(self, other: object) -> "Account":
        if not isinstance(other, Account):
            return NotImplemented
        return Account(*(one + more for one, more in zip(self, other, strict=True)))


class Folded(NamedTuple):
    """What a fold did: how many exchanges it folded into how many new chapters, what that saved, and the facts."""

    exchanges: int = 0
    chapters: int = 0
    saved: int = 0
    account: Account = Account(0, 0)

    def __add__(self, other: object) -> "Folded":
        if not isinstance(other, Folded):
            return NotImplemented
        pairs = zip(self[:3], other[:3], strict=True)
        exchanges, chapters, saved = (one + more for one, more in pairs)
        return Folded(exchanges, chapters, saved, self.account + other.account)
