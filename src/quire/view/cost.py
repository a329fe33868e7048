"""The cost of a view: its price with a prompt cache, its share of the budget, and what a model bills for it.

Providers report how many tokens they billed for a view. From these reports quire learns one factor for each model.
"""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt

from msgspec import Struct
from msgspec.structs import replace

from quire.core.engine import Engine
from quire.core.reader import Reader
from quire.core.records import USAGE, Billing, NoteRecord, PageRecord
from quire.core.state import State
from quire.errors import Conflict, Hint, InvalidOperation, InvalidValue, short_repr
from quire.model.messages import PER_MESSAGE, Message
from quire.model.pages import Lifecycle, OptionsMeta, PageIndex, Visibility
from quire.providers.usage import BilledTokens, read_usage, strip_version
from quire.system.rules import check_whole_number
from quire.view.parts import FoldResult, ShownPage, ViewPart

_DECAY = 0.9
"""The weight of earlier reports is multiplied by this with every report: about the last ten count."""
_STORE_THRESHOLD = 0.005
"""A factor is stored if it differs by this share from the stored one."""
_MAX_MODELS = 100
_MIN_FACTOR, _MAX_FACTOR = 0.2, 5
"""The range of the factor. No vocabulary differs more from quire's; other reports belong to another view."""
_MAX_NAMED = 4
_REPLY_SEARCH = 64
"""The last reply is searched among this many newest messages."""
_KIND_LABELS = {
    "system": "system prompt",
    "preamble": "how to read this",
    "segment": "notes",
    "folded": "folded lines",
    "exchange": "conversation",
    "note": "notes in the conversation",
    "opened": "pages you opened",
    "opening": "opening",
}
_CHANGES = {
    "line": "was hidden: it is one line now",
    "whole": "was opened",
    "clipped": "was clipped",
}


class Price(Struct, frozen=True, kw_only=True, metaclass=OptionsMeta):
    """The price of a token that is read from the prompt cache, written to it, or neither."""

    read: float = 0.1
    write: float = 1.25
    plain: float = 1.0


class Bill(Struct, frozen=True, kw_only=True):
    """The cost of sending a view, and the number of its tokens that are read from the cache, written to it, or neither.

    `cost` is in plain tokens. `why` is a sentence that explains why the other tokens are not read from the cache. The
    bill assumes that the provider still has the prefix: caches live for minutes, and no provider reports when one
    expires.
    """

    read: int
    written: int
    plain: int
    cost: float
    why: str


class Outlook(Struct, frozen=True, kw_only=True):
    """The tokens that a view uses, in total and by kind of part, and the pages that the next fold would fold.

    `reserved` tokens are kept for the reply and for data that is sent with the view: they are not free.
    """

    budget: int
    used: int
    kinds: Mapping[str, int] = {}
    next_fold: tuple[PageIndex, ...] = ()
    reserved: int = 0

    @property
    def free(self) -> int:
        """The tokens that are left until something is folded."""
        return max(0, self.budget - self.reserved - self.used)

    def line(self) -> str:
        """Return the budget and the next fold in one line."""
        pages = self.next_fold
        span = ", ".join(pages) if len(pages) <= _MAX_NAMED else f"{pages[0]} to {pages[-1]} ({len(pages)} pages)"
        coming = f"; a fold would take {span} next" if pages else ""
        reserved = f"{self.reserved:,} reserved, " if self.reserved else ""
        return f"{self.used:,} of {self.budget:,} tokens used, {reserved}{self.free:,} free{coming}"

    def __str__(self) -> str:
        largest = sorted(self.kinds.items(), key=lambda item: -item[1])
        by_kind = [f"{tokens:,} {_KIND_LABELS.get(kind, kind)}" for kind, tokens in largest if tokens]
        return "\n".join([f"{self.line()}.", f"By kind: {', '.join(by_kind)}."])


# The shared prefix


def last_reply_at(state: State) -> int:
    """Return the time of the assistant's newest message in milliseconds since 1970; 0 if the search finds none."""
    newest = state.next_message - 1
    for number in range(newest, max(-1, newest - _REPLY_SEARCH), -1):
        record = state.message(number)
        page = state.page(record.page) if record.message.role == "assistant" else None
        if isinstance(page, PageRecord):  # a message that was removed or moved has no time
            return page.header.created
    return 0


def folder_changes(reader: Reader, before: Sequence[ViewPart], now: Sequence[ViewPart], same: int) -> dict[int, str]:
    """Return a sentence for every page that left a view because a folder was opened or closed.

    The first `same` parts of both views are the same.
    """
    changes: dict[int, str] = {}
    kept = {shown.key for part in now[same:] for shown in part.pages}
    left = [shown for part in before[same:] for shown in part.pages if shown.key not in kept]
    current = _by_page(now) if left else {}
    for shown in left:
        page = reader.page(shown.key) if shown.key not in current else None
        if not isinstance(page, PageRecord) or page.header.lifecycle is not Lifecycle.ACTIVE:
            continue
        folders = [current[above.key] for above in reader.ancestors(page) if above.key in current]
        if page.header.folder and page.header.visibility is Visibility.EXPANDED:
            changes[shown.key] = f"Page {shown.index} was opened: its pages are shown in its place."
        elif folders and folders[-1].granularity == "line":
            changes[shown.key] = f"Page {folders[-1].index} was hidden: it is one line now."
    return changes


def why_not_cached(
    before: Sequence[ViewPart], now: Sequence[ViewPart], fold: FoldResult | None, changes: Mapping[int, str]
) -> str:
    """Return one sentence on what ended the prefix that a view shares with the one before.

    `changes` are sentences on pages that left the view, where the reason is known.
    """
    if not before:
        return "It is the first view: there was none to share a beginning with."
    pairs = enumerate(zip(before, now, strict=False))
    place = next((n for n, (old, new) in pairs if not old.has_same_text(new)), None)
    if place is None:
        messages = sum(len(part.messages) for part in now[len(before) :])
        if messages:
            return f"Only {_quantity(messages, 'new message')} at the end."
        removed = [shown.index for part in before[len(now) :] for shown in part.pages]
        if removed:
            return f"Page {removed[0]} is gone from the end."
        return "Nothing changed." if len(now) >= len(before) else "The end is gone."
    if fold is not None and fold.exchanges:
        return f"A fold moved {_quantity(fold.exchanges, 'exchange')} into {_quantity(fold.chapters, 'new chapter')}."
    return _describe_change(before, now, place, changes)


def _describe_change(
    before: Sequence[ViewPart], now: Sequence[ViewPart], place: int, changes: Mapping[int, str]
) -> str:
    old, new = before[place], now[place]
    was, shown = _by_page(before), _by_page(now)
    for page in old.pages:
        current = shown.get(page.key)
        if current is None:
            return changes.get(page.key) or f"Page {page.index} is gone from the view."
        if current.granularity != page.granularity:
            return f"Page {page.index} {_CHANGES[current.granularity]}."
    added = next((page for page in new.pages if page.key not in was), None)
    if added is not None:
        return f"Page {added.index} was inserted before earlier content."
    if not old.pages:
        return f"The {old.kind} changed." if old.kind == new.kind else f"The {new.kind} was added."
    if {page.key for page in old.pages}.isdisjoint(page.key for page in new.pages):
        left = not new.pages or (place + 1 < len(before) and before[place + 1].has_same_text(new))
        return f"Page {(old if left else new).pages[0].index} moved."
    resized = (page for page in old.pages if shown[page.key].tokens != page.tokens)
    return f"Page {next(resized, old.pages[0]).index} changed."


def _by_page(parts: Sequence[ViewPart]) -> dict[int, ShownPage]:
    return {shown.key: shown for part in parts for shown in part.pages}


def _quantity(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


# What models bill


class Usage(Struct, frozen=True, kw_only=True):
    """The billing of a model: `factor` is billed tokens divided by counted tokens, and `error` is its spread.

    Both come from the last reports. `counted`, `billed` and `cached` are the tokens of the last report. `model` is the
    name of the model without vendor and date.
    """

    model: str
    factor: float
    error: float
    reports: int
    counted: int
    billed: int
    cached: int


def draw_outlook(outlook: Outlook, key: str, count: Callable[[str], int]) -> ViewPart:
    """Return the line with the state of the budget. It counts its own tokens too."""
    tokens, text = 0, ""
    for _ in range(4):  # the figures in the line include the size of the line
        counted = tokens
        text = f"[{key}] Budget: {replace(outlook, used=outlook.used + counted).line()}."
        tokens = count(text) + PER_MESSAGE
        if tokens == counted:
            break
    return ViewPart("budget", [Message(role="user", content=text)], tokens)


class UsageReports:
    """The reports of one handle: those in the storage, and later ones that changed too little to be stored."""

    def __init__(self) -> None:
        self._note: NoteRecord | None = None
        self._billings: dict[str, Billing] = {}

    def by_model(self, reader: Reader) -> Mapping[str, Billing]:
        """Return the billing of every model."""
        note = reader.note(USAGE)
        if note != self._note:
            self._note = note
            self._billings = {billing.model: billing for billing in note.usage} if note else {}
        return self._billings

    def learn(self, engine: Engine, actor: str, usage: object, model: str | None, tools: int, counted: int) -> Usage:
        """Add a provider's report on a view of `counted` tokens; commit the billings if the factor changed."""
        if model is not None and not (isinstance(model, str) and model):
            raise InvalidValue(f"is {short_repr(model)}; the name of a model is needed.", argument="model")
        used, extra = read_usage(usage), check_whole_number(tools, "tools")
        if not counted:
            raise InvalidOperation(
                "There is no view for this report: this handle has rendered none.",
                Hint("render", purpose="first"),
                Hint("report_usage", arguments="usage, view=…", purpose="with the view that was sent"),
            )
        _check_report(used, counted, extra)
        state = engine.current()
        billing = self._add(state, used, model, counted + extra)
        old = _stored_billing(state, billing.model)
        if old is None or abs(_factor(billing) - _factor(old)) > _STORE_THRESHOLD * _factor(old):
            self._store(engine, actor)
        return to_usage(billing)

    def _add(self, reader: Reader, used: BilledTokens, model: str | None, counted: int) -> Billing:
        """Add one report and return the new billing of its model. Large views and late reports have more weight."""
        name = strip_version(model or used.model or "default")
        before = self.by_model(reader).get(name) or Billing(name, 0, 0.0, 0.0, 0.0, 0, 0, 0)
        all_billed = before.all_billed * _DECAY + used.billed
        all_counted = before.all_counted * _DECAY + counted
        spread = before.spread * _DECAY + counted * (used.billed / counted - all_billed / all_counted) ** 2
        reports = before.reports + 1
        billing = Billing(name, reports, all_billed, all_counted, spread, counted, used.billed, used.cached)
        self._billings.pop(name, None)
        self._billings[name] = billing  # the newest is the last
        return billing

    def _store(self, engine: Engine, actor: str) -> None:
        """Commit the billings. A conflict with another writer is not an error: the next report stores them."""
        plan = engine.begin(actor)
        plan.put_note(USAGE, usage=tuple(self._billings.values())[-_MAX_MODELS:])
        try:
            engine.commit(plan, "report_usage")
        except Conflict:
            return
        self._note = plan.notes[USAGE]


def _check_report(used: BilledTokens, counted: int, tools: int) -> None:
    """Raise `InvalidValue` if a report cannot belong to a view of `counted` tokens."""
    factor = used.billed / (counted + tools)
    if not _MIN_FACTOR <= factor <= _MAX_FACTOR:
        extra = f" and {tools:,} of tools" if tools else ""
        raise InvalidValue(
            f"{used.billed:,} tokens were billed for a view of {counted:,}{extra}: a factor of {factor:,.3g}; one from"
            f" {_MIN_FACTOR} to {_MAX_FACTOR} is needed.",
            Hint(
                "report_usage", arguments="usage, view=…, tools=…", purpose="with the view and the tools that were sent"
            ),
        )


def to_usage(billing: Billing) -> Usage:
    """Return the billing of a model as a public value."""
    return Usage(
        model=billing.model,
        factor=_factor(billing),
        error=sqrt(billing.spread / billing.all_counted),
        reports=billing.reports,
        counted=billing.counted,
        billed=billing.billed,
        cached=billing.cached,
    )


def budget_for(reader: Reader, model: str, tokens: int) -> int:
    """Convert a budget in a model's tokens to counted tokens: fewer if the model bills more, never more.

    The stored factor is used, so that the same state gives the same view in every process.
    """
    billing = _stored_billing(reader, strip_version(model))
    return tokens if billing is None else int(tokens / max(1.0, _factor(billing)))


def _stored_billing(reader: Reader, name: str) -> Billing | None:
    note = reader.note(USAGE)
    return next((billing for billing in note.usage if billing.model == name), None) if note else None


def _factor(billing: Billing) -> float:
    return billing.all_billed / billing.all_counted
