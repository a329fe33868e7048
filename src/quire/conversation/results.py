"""What the operations on a conversation tell the caller."""

from collections.abc import Mapping

from msgspec import Struct, field

from quire.model.pages import PageIndex


class Modification(Struct, frozen=True, kw_only=True):
    """What one modification did.

    `covered` are the messages it took out of the conversation (or, for the end of a batch, brought back: `restored`),
    `inserted` those it brought in, `pages` the pages it touched, `summaries` the pages that stand for compressed ones.
    `notes` say in words where it did more, or other, than was asked.
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
    """The messages in order of arrival, and the open batches with the indices they begin at."""

    original_indices: list[int]
    batch_boundaries: list[int]
    boundary_to_batch: list[int]
    current_batch: int


class Cleanup(Struct, frozen=True, kw_only=True):
    """What a cleanup destroyed, and the new index of every message that is left (old → new)."""

    renumbered: Mapping[int, int] = field(default_factory=dict)
    messages: int = 0
    pages: int = 0
    bytes: int = 0


class Finding(Struct, frozen=True, kw_only=True):
    """One thing an import found: what kind, at which item of the history or which message index, and in words."""

    kind: str
    item: int | None = None
    index: int | None = None
    text: str = ""


class ImportReport(Struct, frozen=True, kw_only=True):
    """What an import took in: how many messages, their first and last index, and all that was not as it should be.

    `marked` are the messages that are kept but cannot be shown to a model.
    """

    messages: int = 0
    pages: int = 0
    first: int | None = None
    last: int | None = None
    marked: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
