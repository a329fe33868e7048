"""What an examination finds, in words: what it is, how bad it is, and what would repair it."""

from typing import Literal

from msgspec import Struct

Severity = Literal["note", "warning", "error"]
"""`note`: good to know. `warning`: nothing is lost, something should be done. `error`: something is damaged."""


class Symptom(Struct, frozen=True, kw_only=True):
    """One thing that is wrong: a stable `code`, where it is, what it means, what would repair it, and whether it was.

    `context` is empty if it is about the store as a whole.
    """

    code: str
    severity: Severity
    where: str
    text: str
    remedy: str = ""
    context: str = ""
    repaired: bool = False

    def __str__(self) -> str:
        place = f"{self.context}: {self.where}" if self.context else self.where
        after = " Repaired." if self.repaired else f" {self.remedy}" if self.remedy else ""
        stop = "" if self.text.endswith((".", "!", "?", "。")) else "."
        return f"{self.severity} [{self.code}] {place}: {self.text}{stop}{after}"
