"""The laws of views as checks: of one view, of a view and the one before it, of a view and another handle's.

`check_walk(number, steps)` walks and checks all of them. A failure names the number, which replays it.
"""

import json
from typing import Any, NamedTuple

import quire
from quire import Context, Lifecycle, Message, View, Visibility, check_legal
from quire.providers import format_messages
from quire.view.parts import ViewPart
from tests.view.counting import anthropic_tokens, openai_tokens, responses_tokens
from tests.view.legality import anthropic_is_legal, openai_is_legal, responses_is_legal
from tests.view.states import PRIVATE_WORD, Walk

Values = dict[str, Any]
NO_RESULT = "[no result]"
REOPENED = 0.2
"""The share of states that a new handle draws once more: this costs as much as all other checks together."""


class Forms:
    """A view in all three forms."""

    def __init__(self, view: View) -> None:
        self.openai = view.openai()
        self.responses = view.responses()
        request = view.anthropic()
        self.anthropic = request["messages"]
        self.prompt = request.get("system", "")

    def text(self) -> str:
        """Return everything that would be sent."""
        return json.dumps([self.openai, self.responses, self.anthropic, self.prompt], ensure_ascii=False)


class Seen(NamedTuple):
    """The view before: its content, whether it shows the context's layout, and whether it had the prompt."""

    view: View
    forms: Forms
    steady: bool
    system: bool


class Run:
    """A walk, and its last view that another view may follow."""

    def __init__(self, number: int) -> None:
        self.walk = Walk(number)
        self.last: Seen | None = None


def check_walk(number: int, steps: int) -> int:
    """Walk this many steps and check every view on the way. Return the number of states with a view."""
    run = Run(number)
    walk = run.walk
    try:
        views = sum(check_state(run) for _ in range(steps))
    except BaseException as error:
        error.add_note(f"replay with check_walk({number}, {steps}): budget {walk.budget}, {walk.config}, {walk.trace}")
        raise
    walk.ctx.refresh()
    assert walk.ctx.check() == []
    return views


def check_state(run: Run) -> bool:
    """Go to the next state and check its view. Return False if there is none because required parts do not fit."""
    walk, ctx = run.walk, run.walk.ctx
    walk.step()
    options = walk.options()
    stale = walk.second is not None and walk.second.seq != ctx.seq  # it cannot know the positions
    said = [] if stale else [message for message in ctx.messages() if has_words(message)]
    asked, system = last_user(ctx, said), bool(options.get("include_system_prompt", True))
    wanted = options.get("max_tokens", walk.budget)
    room = max(0, wanted - options.get("reserve", 0))
    try:
        view = ctx.render(**options)
    except quire.IrreducibleFloor:
        assert stale or must_be_shown(ctx, system=system) > room
        return False
    layout = ctx._views._renderer._update_cache()  # what the last fold left, and everything since
    may_fold = walk.config.enabled and not options.get("preview")
    capped = layout.is_over_capacity and not may_fold  # what is above a capacity folds in this view alone
    steady = wanted == walk.budget and layout.total_tokens() <= room and not capped
    now = Seen(view, Forms(view), steady, system)
    check_view(now, room, asked, None if stale else ctx)
    if not stale:
        check_reach(ctx, now, said)
    if not stale and walk.chance.random() < REOPENED:
        check_reopened(walk, now, {**options, "max_tokens": wanted, "preview": True})
    check_after(run, now)
    if wanted == walk.budget and not options.get("preview"):
        run.last, walk.edited, walk.looked = now, False, False
    return True


def has_words(message: Message) -> bool:
    """Return whether a message has more than thinking, which is not sent alone."""
    parts = message.content if isinstance(message.content, list) else []
    return message.has_content and not (
        parts and all(p["type"] == "thinking" for p in parts) and not message.tool_calls
    )


def check_view(now: Seen, room: int, asked: int | None, ctx: Context | None) -> None:
    """Check the laws of one view."""
    check_size(now.view, now.forms, room)
    if any(message.role != "system" for message in now.view.messages):
        check_legality(now.forms)
    if now.system and ctx is not None:
        check_prompts(ctx, now.view, now.forms)
    assert asked is None or asked in [message.index for message in now.view.messages]
    assert PRIVATE_WORD not in now.forms.text()


def check_reopened(walk: Walk, now: Seen, options: Values) -> None:
    """Check that the same state gives the same bytes on every handle."""
    again = walk.open().render(**options)
    assert Forms(again).text() == now.forms.text()
    assert again.tokens == now.view.tokens


def check_after(run: Run, now: Seen) -> None:
    """Check the laws of a view and the one before it."""
    before, walk = run.last, run.walk
    if before is None or walk.looked:
        return
    assert now.view.shared_prefix == shared_tokens(before.view, now.view)
    same = now.steady and before.steady and now.system is before.system
    if same and not walk.edited and now.view.fold is None:
        check_prefix(before, now, is_answered=walk.trace[-1] == "result")


def check_size(view: View, forms: Forms, room: int) -> None:
    """Check that every form is within the budget, and that `view.tokens` is the cost of the form for OpenAI."""
    assert view.tokens <= room
    assert view.tokens == sum(part.tokens for part in view.parts)
    openai = openai_tokens(forms.openai)
    assert openai <= view.tokens
    assert responses_tokens(forms.responses) <= room
    assert anthropic_tokens(forms.anthropic, forms.prompt) <= room
    if all(map(_is_plain, view.messages)):
        assert openai == view.tokens


def _is_plain(message: Message) -> bool:
    """Return whether all forms have the message in the same words."""
    objects = all(call.arguments.startswith("{") and call.arguments.endswith("}") for call in message.tool_calls)
    return objects and not message.name and (message.content is None or isinstance(message.content, str))


def check_legality(forms: Forms) -> None:
    """Check that all forms are legal, by the library's checker and by the tests' own."""
    assert check_legal(forms.openai, "openai") == []
    assert check_legal(forms.responses, "responses") == []
    assert check_legal(forms.anthropic, "anthropic") == []
    assert openai_is_legal(forms.openai)
    assert responses_is_legal(forms.responses)
    assert anthropic_is_legal(forms.anthropic)


def check_prompts(ctx: Context, view: View, forms: Forms) -> None:
    """Check that every pinned prompt is whole in the view and in the forms."""
    said = [message.content for message in view.messages if message.role == "system"]
    sent = [message["content"] for message in forms.openai if message["role"] == "system"]
    apart = forms.prompt if isinstance(forms.prompt, str) else "\n".join(block["text"] for block in forms.prompt)
    for page in ctx.pages.children("sys-0"):
        if page.pinned:
            text = ctx.pages.detail(page.index).removeprefix("System: ")
            assert text in said
            assert text in sent
            assert text in apart


def last_user(ctx: Context, said: list[Message]) -> int | None:
    """Return the index of the last open user message in the conversation."""
    for message in reversed(said):
        if message.role == "user":
            index = ctx.conversation.page_of(message.index)
            page = ctx.pages.get_page(index or "")
            open_there = page.effective is Lifecycle.ACTIVE and page.visibility is Visibility.EXPANDED
            if open_there and page.index.startswith("usr-"):
                return message.index
    return None


def check_reach(ctx: Context, now: Seen, said: list[Message]) -> None:
    """Check that every message without a mark is on a page that is shown, or below one, unless it was archived."""
    if not now.steady:  # lines of chapters that were made for this view alone
        return
    shown = {page.index for page in now.view.pages}
    pages = {ctx.conversation.page_of(message.index) for message in said}
    for index in pages - shown:
        assert index is not None
        chain = [ctx.pages.get_page(index), *ctx.pages.ancestors(index)]
        archived = any(page.lifecycle is not Lifecycle.ACTIVE for page in chain)
        if archived or index.startswith("own-" if now.system else ("own-", "sys-")):
            continue
        assert any(page.index in shown for page in chain), f"{index} cannot be reached"


def check_prefix(before: Seen, now: Seen, *, is_answered: bool) -> None:
    """Check that between folds a view only grows at its end.

    With `is_answered`, a waiting call got its result. It may be in the last exchange, or in the last folded line, which
    has the tokens of its page.
    """
    start = before.forms.openai[: -1 if before.view.tail else None]  # the opening of an empty conversation
    waiting = next((n for n, m in enumerate(start) if m["role"] == "tool" and m["content"] == NO_RESULT), None)
    if waiting is not None:
        start = start[: max(n for n in range(waiting) if start[n]["role"] == "assistant")]
    elif is_answered and before.view.parts[-1 - len(before.view.tail)].kind == "folded":
        start = start[:-1]
    assert now.forms.openai[: len(start)] == start


def shared_tokens(before: View, now: View) -> int:
    """Return the tokens of the common prefix of two views, compared by the sent content.

    The tail of the view before counts if it stays.
    """
    stable = now.parts[: len(now.parts) - len(now.tail)]
    same = 0
    while same < min(len(before.parts), len(stable)) and _sent(before.parts[same]) == _sent(stable[same]):
        same += 1
    stays = same == len(before.parts)
    return sum(part.tokens for part in stable[: same if stays else min(same, len(before.parts) - len(before.tail))])


def _sent(part: ViewPart) -> list[Any]:
    return [part.openai(), format_messages(part.messages, "anthropic"), format_messages(part.messages, "responses")]


def must_be_shown(ctx: Context, *, system: bool) -> int:
    """Return an upper bound of the required parts: prompts, pinned pages, hidden lines, notes, open calls."""
    total = 400
    for page in ctx.pages.list_pages():
        if page.index.startswith("own-") or (page.index.startswith("sys-") and not system):
            continue
        is_line = page.visibility is Visibility.HIDDEN or not page.index.startswith("usr-")
        total += page.tokens if page.pinned else 0
        total += 60 if is_line and page.effective is Lifecycle.ACTIVE else 0
    return total + 40 * len(ctx.pending_calls())
