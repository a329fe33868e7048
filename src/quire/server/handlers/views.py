"""Views: what a model sees, why, and what differs between two of them."""

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from msgspec import Raw
from msgspec.json import encode

from quire.context import Context
from quire.model.pages import PageIndex
from quire.server import asked, told
from quire.server.desk import Asked, Desk
from quire.server.shelf import Opened, Written
from quire.view.parts import total_tokens
from quire.view.view import View

_SPECIAL = ("window", "recalled")
"""Pieces of the tail, which are told apart by what they are."""


def view(desk: Desk, request: Asked) -> told.ViewOf:
    """What a model would see. Nothing is written."""
    query: asked.ViewQuery = request.query
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        drawn = context.render(max_tokens=_budget(context, query.budget), recall=query.recall, preview=True)
        if query.against == "call":
            return _told(opened, drawn, query.format, opened.calls.last(context, drawn.budget))
        return _told(opened, drawn, query.format, opened.follow(drawn))


def render(desk: Desk, request: Asked) -> told.ViewOf:
    """What a model is to see: at this budget it may fold."""
    body: asked.Rendering = request.body
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        usual, context.budget = context.budget, _budget(context, body.budget)
        try:
            drawn = context.render(
                recall=body.recall,
                reserve=body.reserve,
                budget_line=body.budget_line,
                include_obsolete=body.include_obsolete,
                windows=body.windows,
            )
        finally:
            context.budget = usual
        return _told(opened, drawn, body.format, opened.follow(drawn))


def why(desk: Desk, request: Asked) -> told.Reason:
    """Why a page is shown as it is."""
    query: asked.WhyQuery = request.query
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        context.pages.get_page(request.path["p"])  # no view is needed to say that it is not there
        drawn = context.render(max_tokens=_budget(context, query.budget), preview=True)
        found = context.why(request.path["p"], drawn)
        return told.Reason(
            index=found.index, shown=found.shown, reason=found.rule, tokens=found.tokens, call=found.call
        )


def diff(desk: Desk, request: Asked) -> told.Diff:
    """Two views side by side, each at an entry and a budget. Nothing is written."""
    query: asked.DiffQuery = request.query
    with desk.shelf.use(request.path["c"]) as opened:
        context = opened.context
        left = _at(context, query.left_seq, query.left_budget)
        right = _at(context, query.right_seq, query.right_budget)
        written = [_whole(drawn, query.format) for drawn in (left, right)]
        seqs = [context.seq if seq is None else seq for seq in (query.left_seq, query.right_seq)]
        return told.Diff(
            left=_side(left, seqs[0], written[0]),
            right=_side(right, seqs[1], written[1]),
            format=query.format,
            shared=_shared(*written),
            changes=list(_changes(*written)),
            pages=[
                told.PageDifference(page=one.page, change=one.change, left=one.before, right=one.tokens)
                for one in right.diff(left)
            ],
        )


def _budget(context: Context, budget: int | None) -> int:
    return context.budget if budget is None else budget


def _at(context: Context, seq: int | None, budget: int | None) -> View:
    past = context if seq is None or seq == context.seq else context.as_of(seq)
    return past.render(max_tokens=_budget(context, budget), preview=True)


def _side(view: View, seq: int, written: list[Any]) -> told.Side:
    return told.Side(seq=seq, budget=view.budget, tokens=view.tokens, messages=len(written))


def _written(view: View, form: asked.Format) -> tuple[list[dict[str, Any]], Any]:
    """The messages of a view as a provider gets them, and the system prompt if it stands apart."""
    if form == "anthropic":
        request = view.anthropic()
        return list(request), request.system or None
    return (view.responses() if form == "responses" else view.openai()), None


def _whole(view: View, form: asked.Format) -> list[dict[str, Any]]:
    """All messages of a view; a system prompt that stands apart is the first of them."""
    written, prompt = _written(view, form)
    return written if prompt is None else [{"role": "system", "content": prompt}, *written]


def _told(opened: Opened, view: View, form: asked.Format, before: View | None) -> told.ViewOf:
    fold = view.fold
    sent = opened.written(view, form, lambda: _sent(opened, view, form))
    return told.ViewOf(
        seq=view.seq,
        tokens=view.tokens,
        budget=view.budget,
        format=form,
        messages=sent.messages,
        system=sent.system,
        prefix=_prefix(view, before, sent.places),
        items=sent.items,
        folded={"exchanges": fold.exchanges, "chapters": fold.chapters, "saved": fold.saved} if fold else None,
    )


def _sent(opened: Opened, view: View, form: asked.Format) -> Written:
    places = view.places(form)
    messages, prompt = _written(view, form)
    items = list(_items(opened.names(view), view, places))
    return Written(view, places, Raw(encode(messages)), prompt, Raw(encode(items)))


def _prefix(view: View, before: View | None, places: list[int]) -> told.Prefix:
    """What a view shares with the one of the same budget before it."""
    if before is None:
        return told.Prefix(messages=0, tokens=0, broke=None)
    followed = view.following(before)
    at, left = 0, followed.shared_prefix
    for part, place in zip(view.parts, places, strict=True):
        at = max(at, place)
        left -= part.tokens
        if left < 0:
            break
    steady = before.tokens - total_tokens(before.tail)
    broke = told.Break(at=at, why=followed.bill().why) if followed.shared_prefix < steady else None
    return told.Prefix(messages=at, tokens=followed.shared_prefix, broke=broke)


def _items(names: Mapping[PageIndex, str], view: View, places: list[int]) -> Iterator[told.Shown]:
    """The pieces of a view, in order; their tokens are all of its tokens."""
    for part, place in zip(view.parts, places, strict=True):
        rest = part.tokens
        for shown in part.pages:
            rest -= shown.tokens
            yield told.Shown(
                page=shown.index,
                name=names[shown.index],  # a chapter that this view imagined has none
                segment=shown.index.rpartition("-")[0],
                kind=part.kind,
                how=part.kind if part.kind in _SPECIAL else shown.granularity,
                tokens=shown.tokens,
                message=place,
            )
        if rest or not part.pages:
            how = "frame" if part.pages else part.kind
            yield told.Shown(page=None, name="", segment=None, kind=part.kind, how=how, tokens=rest, message=place)


def _shared(left: list[Any], right: list[Any]) -> int:
    pairs = zip(left, right, strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))


def _changes(left: list[Any], right: list[Any]) -> Iterator[told.Difference]:
    """What happened to each message from one view to the other."""
    keys = [[encode(message) for message in side] for side in (left, right)]
    for tag, i, i_end, j, j_end in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if tag == "equal":
            for one in left[i:i_end]:
                yield told.Difference(op="same", left=one, right=one)
            continue
        both = min(i_end - i, j_end - j)
        for n in range(both):
            yield told.Difference(op="changed", left=left[i + n], right=right[j + n])
        for one in left[i + both : i_end]:
            yield told.Difference(op="removed", left=one, right=None)
        for one in right[j + both : j_end]:
            yield told.Difference(op="added", left=None, right=one)
