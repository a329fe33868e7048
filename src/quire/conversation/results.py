"""Results: the values that operations on a conversation return."""

from collections.abc import Mapping

from msgspec import Struct, field

from quire.model.pages import PageIndex
from quire.storage.base import Remainder


class Modification(Struct, frozen=True, kw_only=True):
    """The result of one modification.

    `covered` are the messages it took out of the conversation (at the end of a batch, `restored` are those
    it brought back), `inserted` are new messages, `pages` the changed pages, `summaries` the pages that replace
    compressed messages. `notes` explain where it did more than was asked, or something else.
    """

    operation: str
    covered: tuple[int, ...] = ()
    inserted: tuple[int, ...] = ()
    restored: tuple[int, ...] = ()
    pages: tuple[PageIndex, ...] = ()
    summaries: tuple[PageIndex, ...] = ()
    batch: int = 0
    boundary: int | None = None
    notes: tuple[str, ...] = ()


class MarkMap(Struct, frozen=True, kw_only=True):
    """The messages in order of arrival, and the open batches with their first indices."""

    original_indices: list[int]
    batch_boundaries: list[int]
    boundary_to_batch: list[int]
    current_batch: int


class Cleanup(Struct, frozen=True, kw_only=True):
    """The result of a cleanup: the destroyed messages, and the new index of every other one (old to new).

    `scrubbed` is True if the store has no byte of them any more; else `remains` says what it has and why.
    """

    renumbered: Mapping[int, int] = field(default_factory=dict)
    messages: int = 0
    pages: int = 0
    bytes: int = 0
    scrubbed: bool = False
    remains: tuple[Remainder, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """One finding of an import: its kind, the item of the history or the message index, and a text."""

    kind: str
    item: int | None = None
    index: int | None = None
    text: str = ""


class ImportReport(Struct, frozen=True, kw_only=True):
    """The result of an import: the number of messages, their first and last index, and all findings.

    `marked` are messages that are kept but cannot be shown to a model.
    """

    messages: int = 0
    pages: int = 0
    first: int | None = None
    last: int | None = None
    marked: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
