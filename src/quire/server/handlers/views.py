"""Handlers for views: what a model sees, the reasons, the differences between two views, windows and tools."""

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw
from msgspec.json import encode

from quire.context import Context
from quire.errors import QuireError
from quire.model.pages import PageIndex
from quire.server import responses
from quire.server.context_pool import EncodedView, OpenContext
from quire.server.handlers import ActionArguments, Budget, Format, Seq, Share
from quire.server.responses import ViewBody, fill
from quire.view.parts import RecalledPage, total_tokens
from quire.view.view import View
from quire.windows.app import Window

_TAIL_KINDS = ("window", "recalled")
"""Parts of the tail; their items have the kind instead of a granularity."""


def show_view(
    opened: OpenContext,
    *,
    budget: Budget | None = None,
    format: Format = "openai",
    recall: Share | bool | None = None,
    against: Literal["given", "call"] = "given",
) -> ViewBody:
    """Preview a model's view without writing.

    The prefix is compared with the last view returned for the same budget (`given`), or with the view that the model's
    last answer was based on (`call`).
    """
    context = opened.context
    view = context.render(max_tokens=budget, recall=recall, preview=True)
    before = opened.last_call.view(context, view.budget) if against == "call" else opened.replace_view(view)
    return _view_body(opened, view, format, before)


def show_sent(opened: OpenContext, *, format: Format = "openai") -> responses.SentBody:
    """Show the last view that a model answered, as it was sent: with windows, recalled pages and tools."""
    sent = opened.last_call.sent(opened.context)
    if sent is None:
        return responses.SentBody(opened.context.seq)
    view = None if sent.view is None else _view_body(opened, sent.view, format, None)
    return fill(responses.SentBody, sent, seq=opened.context.seq, exact=sent.is_exact, view=view)


def render_view(
    opened: OpenContext,
    *,
    budget: Budget | None = None,
    format: Format = "openai",
    recall: Share | bool | None = None,
    recall_floor: Annotated[float, Meta(ge=0)] | None = None,
    reserve: Annotated[int, Meta(ge=0, le=10_000_000)] = 0,
    budget_line: bool = False,
    include_obsolete: bool = False,
    windows: Literal["tail", "inline"] = "tail",
) -> ViewBody:
    """Render a model's view; this may fold pages. A `budget` becomes that of the context."""
    context = opened.context
    before = context.budget
    if budget is not None:
        context.budget = budget
    try:
        view = context.render(
            recall=recall,
            recall_floor=recall_floor,
            reserve=reserve,
            budget_line=budget_line,
            include_obsolete=include_obsolete,
            windows=windows,
        )
    except QuireError:
        if budget is not None:
            context.budget = before
        raise
    return _view_body(opened, view, format, opened.replace_view(view))


def explain_page(opened: OpenContext, index: PageIndex, *, budget: Budget | None = None) -> responses.Reason:
    """Explain why a page is shown the way it is."""
    context = opened.context
    context.pages.get_page(index)  # fails before a view is drawn
    view = context.render(max_tokens=budget, preview=True)
    why = context.why(index, view)
    return fill(responses.Reason, why, reason=why.rule)


def compare_views(
    opened: OpenContext,
    *,
    left_seq: Seq | None = None,
    left_budget: Budget | None = None,
    right_seq: Seq | None = None,
    right_budget: Budget | None = None,
    format: Format = "openai",
) -> responses.Diff:
    """Compare two views, each at an entry and a budget, without writing."""
    context = opened.context
    left, right = _view_at(context, left_seq, left_budget), _view_at(context, right_seq, right_budget)
    messages = [_all_messages(view, format) for view in (left, right)]
    seqs = [context.seq if seq is None else seq for seq in (left_seq, right_seq)]
    return responses.Diff(
        left=fill(responses.Side, left, seq=seqs[0], messages=len(messages[0])),
        right=fill(responses.Side, right, seq=seqs[1], messages=len(messages[1])),
        format=format,
        shared=_count_shared(*messages),
        changes=list(_differences(*messages)),
        pages=[
            responses.PageDifference(one.page, one.change, left=one.before, right=one.tokens)
            for one in right.diff(left)
        ],
    )


def _view_at(context: Context, seq: int | None, budget: int | None) -> View:
    past = context if seq is None or seq == context.seq else context.as_of(seq)
    return past.render(max_tokens=budget, preview=True)


def _messages(view: View, form: Format) -> tuple[list[dict[str, Any]], Any]:
    """Return the messages of a view in a provider's format, and the system prompt if the format has it separately."""
    if form == "anthropic":
        request = view.anthropic()
        return request["messages"], request.get("system")
    return (view.responses() if form == "responses" else view.openai()), None


def _all_messages(view: View, form: Format) -> list[dict[str, Any]]:
    """Return all messages of a view; a separate system prompt is the first of them."""
    messages, system = _messages(view, form)
    return messages if system is None else [{"role": "system", "content": system}, *messages]


def _view_body(opened: OpenContext, view: View, form: Format, before: View | None) -> ViewBody:
    fold = view.fold
    encoded = opened.encoded_view(view, form, lambda: _encode(opened, view, form))
    return fill(
        ViewBody,
        view,
        format=form,
        messages=encoded.messages,
        system=encoded.system,
        prefix=_prefix(view, before, encoded.places),
        items=encoded.items,
        folded={"exchanges": fold.exchanges, "chapters": fold.chapters, "saved": fold.saved} if fold else None,
    )


def _encode(opened: OpenContext, view: View, form: Format) -> EncodedView:
    places = view.places(form)
    messages, system = _messages(view, form)
    items = list(_items(opened.page_names(view), view, places))
    return EncodedView(view, places, Raw(encode(messages)), system, Raw(encode(items)))


def _prefix(view: View, before: View | None, places: list[int]) -> responses.Prefix:
    """Compare a view with an earlier one of the same budget."""
    if before is None:
        return responses.Prefix(messages=0, tokens=0, broke=None)
    followed = view.following(before)
    at, left = 0, followed.shared_prefix
    for part, place in zip(view.parts, places, strict=True):
        at = max(at, place)
        left -= part.tokens
        if left < 0:
            break
    without_tail = before.tokens - total_tokens(before.tail)
    broke = responses.Break(at, followed.bill().why) if followed.shared_prefix < without_tail else None
    return responses.Prefix(at, followed.shared_prefix, broke)


def _items(names: Mapping[PageIndex, str], view: View, places: list[int]) -> Iterator[responses.ViewItem]:
    """Yield the items of a view in order. The sum of their tokens is the size of the view."""
    for part, place in zip(view.parts, places, strict=True):
        rest = part.tokens
        for shown in part.pages:
            rest -= shown.tokens
            recalled = shown if isinstance(shown, RecalledPage) else None
            yield responses.ViewItem(
                page=shown.index,
                name=names[shown.index],  # "" for a chapter that exists only in this preview
                segment=shown.index.rpartition("-")[0],
                kind=part.kind,
                how=part.kind if part.kind in _TAIL_KINDS else shown.granularity,
                tokens=shown.tokens,
                message=place,
                path=recalled.path if recalled else (),
                score=recalled.score if recalled else None,
                reason=shown.reason,
            )
        if rest or not part.pages:
            how = "frame" if part.pages else part.kind
            yield responses.ViewItem(
                page=None, name="", segment=None, kind=part.kind, how=how, tokens=rest, message=place
            )


def _count_shared(left: list[Any], right: list[Any]) -> int:
    pairs = zip(left, right, strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))


def _differences(left: list[Any], right: list[Any]) -> Iterator[responses.Difference]:
    """Yield the change of each message from one view to the other."""
    keys = [[encode(message) for message in side] for side in (left, right)]
    for tag, i, i_end, j, j_end in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (responses.Difference("same", one, one) for one in left[i:i_end])
            continue
        both = min(i_end - i, j_end - j)
        for n in range(both):
            yield responses.Difference("changed", left[i + n], right[j + n])
        yield from (responses.Difference("removed", one, None) for one in left[i + both : i_end])
        yield from (responses.Difference("added", None, one) for one in right[j + both : j_end])


def list_windows(opened: OpenContext, *, obsolete: bool = False) -> responses.Windows:
    """List the windows; with `obsolete`, closed ones too."""
    context = opened.context
    lines = [_window_line(context, window) for window in context.windows.list(include_obsolete=obsolete)]
    return responses.Windows(lines, list(context.windows.apps()), context.seq)


def act(opened: OpenContext, window: str, action: str, *, body: ActionArguments) -> responses.ActionResult:
    """Run an action of a window."""
    result = opened.context.windows.act(window, action, body or {})
    return responses.ActionResult(opened.context.seq, result)


def list_tools(
    opened: OpenContext, *, format: Literal["openai", "anthropic", "responses", "mcp"] = "openai"
) -> responses.ToolList:
    """List the agent's tools in a provider's format."""
    tools: list[Any] = getattr(opened.context.tools, format)()
    return responses.ToolList(format, tools)


def call_tool(opened: OpenContext, *, name: str, arguments: dict[str, Any] | str | None = None) -> responses.ToolResult:
    """Call a tool as the agent. The arguments are an object, or JSON text as a model wrote it."""
    result = opened.context.tools.call(name, {} if arguments is None else arguments)
    return responses.ToolResult(result, opened.context.seq)


def _window_line(context: Context, window: Window) -> responses.WindowLine:
    content = window.content
    items = [] if isinstance(content, str) else [responses.WindowItem(*item) for item in content]
    text = content if isinstance(content, str) else "\n".join(item.text for item in items)
    return fill(
        responses.WindowLine,
        window,
        title=window.description,
        content=text,
        items=items,
        tokens=context.pages.counter.count(text),
        actions=[fill(responses.ActionLine, action, parameters=action.schema()) for action in window.actions],
    )
