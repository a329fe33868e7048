"""What providers bill for views against what was counted: one factor for each model, learned from their reports."""

from collections.abc import Mapping
from math import sqrt

from msgspec import Struct

from quire.core.plan import Plan
from quire.core.reader import Reader
from quire.core.records import USAGE, Billing, NoteRecord
from quire.errors import InvalidValue
from quire.providers.usage import BilledTokens, strip_version

UNNAMED = "default"
"""The model of a report that names none."""
_KEPT = 0.9  # of what was known, with every report: the last ten or so count
_WORTH_STORING = 0.005
_MOST = 100
_LEAST_FACTOR, _LARGEST_FACTOR = 0.2, 5
"""No vocabulary is further away from ours; a report that is, belongs to something else."""


class Usage(Struct, frozen=True, kw_only=True):
    """What a model bills for what we count: `factor` is billed by counted over the last reports, `error` its spread.

    `counted`, `billed` and `cached` are those of the last report. The model is named without vendor and date.
    """

    model: str
    factor: float
    error: float
    reports: int
    counted: int
    billed: int
    cached: int


class Reports:
    """The reports of one handle: what is stored, and what has come since and moved too little to be."""

    def __init__(self) -> None:
        self._note: NoteRecord | None = None
        self._known: dict[str, Billing] = {}

    def known(self, reader: Reader) -> Mapping[str, Billing]:
        """What is known of each model."""
        note = reader.note(USAGE)
        if note != self._note:
            self._note = note
            self._known = {billing.model: billing for billing in note.usage} if note else {}
        return self._known

    def add(self, reader: Reader, used: BilledTokens, model: str | None, counted: int) -> Billing:
        """Take in one report; what is known of its model then."""
        name = strip_version(model or used.model or UNNAMED)
        billing = _learned(self.known(reader).get(name), name, used, counted)
        self._known.pop(name, None)
        self._known[name] = billing  # the newest is the last
        return billing

    def store(self, plan: Plan) -> None:
        """Plan to keep all that is known."""
        plan.put_note(USAGE, usage=tuple(self._known.values())[-_MOST:])

    def stored(self, plan: Plan) -> None:
        """What was planned is kept."""
        self._note = plan.notes[USAGE]


def check_report(used: BilledTokens, counted: int, tools: int) -> None:
    """Refuse a report that cannot be one of this view. Raises `InvalidValue`."""
    factor = used.billed / (counted + tools)
    if not _LEAST_FACTOR <= factor <= _LARGEST_FACTOR:
        beside = f" and {tools:,} of tools" if tools else ""
        raise InvalidValue(
            f"{used.billed:,} tokens were billed for a view of {counted:,}{beside}: a factor of {factor:,.3g}; one from"
            f" {_LEAST_FACTOR} to {_LARGEST_FACTOR} is needed. Give the view that was sent as view=, and what was sent"
            " beside it as tools=."
        )


def to_usage(billing: Billing) -> Usage:
    """What is known of a model, as a value."""
    return Usage(
        model=billing.model,
        factor=_factor(billing),
        error=sqrt(billing.spread / billing.all_counted),
        reports=billing.reports,
        counted=billing.counted,
        billed=billing.billed,
        cached=billing.cached,
    )


def is_worth_storing(reader: Reader, billing: Billing) -> bool:
    """Whether a factor is new, or half a percent away from the stored one."""
    old = _stored(reader, billing.model)
    return old is None or abs(_factor(billing) - _factor(old)) > _WORTH_STORING * _factor(old)


def budget_for(reader: Reader, model: str, tokens: int) -> int:
    """So many of a model's tokens in ours: fewer if it bills more than we count, never more.

    It follows the stored factor, so that the same state gives the same view in every process.
    """
    billing = _stored(reader, strip_version(model))
    return tokens if billing is None else int(tokens / max(1.0, _factor(billing)))


def _stored(reader: Reader, name: str) -> Billing | None:
    note = reader.note(USAGE)
    return next((billing for billing in note.usage if billing.model == name), None) if note else None


def _factor(billing: Billing) -> float:
    return billing.all_billed / billing.all_counted


def _learned(old: Billing | None, name: str, used: BilledTokens, counted: int) -> Billing:
    """What is known after one more report: a large view tells more than a small one, a late report more than an old."""
    before = old or Billing(name, 0, 0.0, 0.0, 0.0, 0, 0, 0)
    all_billed = before.all_billed * _KEPT + used.billed
    all_counted = before.all_counted * _KEPT + counted
    spread = before.spread * _KEPT + counted * (used.billed / counted - all_billed / all_counted) ** 2
    return Billing(name, before.reports + 1, all_billed, all_counted, spread, counted, used.billed, used.cached)
