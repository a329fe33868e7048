"""The laws of views as checks: of one view, of a view and the one before it, of a view and another handle's.

`check_walk(number, steps)` walks and checks all of them. A failure names the number, which replays it.
"""

import json
from typing import Any, NamedTuple

import quire
from quire import Context, Lifecycle, Message, View, Visibility, check_legal
from tests.strict_provider import Api, Request, State, check_request
from tests.strict_provider.tokens import count_request
from tests.view_laws.steps import new_walk
from tests.view_laws.walks import PRIVATE_WORD, Model, Walk

Values = dict[str, Any]
NO_RESULT = "[no result]"
APIS: tuple[Api, ...] = ("anthropic", "chat", "responses")
FEW = 0.15
"""The share of states that a new handle draws once more and in which all is sought: this costs more than the rest."""


class Forms:
    """A view in all three forms."""

    def __init__(self, view: View) -> None:
        self.openai = view.openai()
        self.responses = view.responses()
        self.anthropic = view.anthropic()

    def text(self) -> str:
        """Return everything that would be sent."""
        return json.dumps([self.openai, self.responses, self.anthropic], ensure_ascii=False)


class Seen(NamedTuple):
    """A view: its content, whether it shows the stored layout, and its options."""

    view: View
    forms: Forms
    steady: bool
    options: Values

    @property
    def system(self) -> bool:
        return bool(self.options.get("include_system_prompt", True))


class Run:
    """A walk, and its last view that another view may follow."""

    def __init__(self, number: int) -> None:
        self.walk = new_walk(number)
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
    wanted = options.get("max_tokens", walk.budget)
    room = max(0, wanted - options.get("reserve", 0))
    own = wanted == walk.budget and not options.get("preview")
    asked = last_user(ctx, said)
    try:
        view = ctx.render(**options)
    except quire.IrreducibleFloor:
        assert stale or must_be_shown(ctx, options) > room
        return False
    steady = own and not stale and walk.config.enabled and options.get("windows") != "inline"
    now = Seen(view, Forms(view), steady, options)
    check_view(view, now.forms, room, walk.model)
    if not stale:
        check_prompts(ctx, now)
        assert asked is None or asked in [message.index for message in view.messages]
        check_reach(ctx, now, said, seek=walk.chance.random() < FEW)
        if walk.chance.random() < FEW:
            check_reopened(walk, now, {**options, "max_tokens": wanted, "preview": True})
    check_after(run, now)
    if own:
        run.last, walk.edited, walk.looked = now, False, False
        if view.messages[-1].role != "assistant" and walk.chance.random() < 0.3:
            walk.answer(view)
    return True


def has_words(message: Message) -> bool:
    """Return whether a message has more than thinking, which is not sent alone."""
    parts = message.content if isinstance(message.content, list) else []
    return message.has_content and not (
        parts and all(p["type"] == "thinking" for p in parts) and not message.tool_calls
    )


# One view


def check_view(view: View, forms: Forms, room: int, model: Model) -> None:
    """Check the laws that need only a view."""
    check_size(view, forms, room)
    if any(message.role != "system" for message in view.messages):
        check_legality(forms)
        check_requests(view, model, room)
    assert PRIVATE_WORD not in forms.text()


def check_shown(ctx: Context, view: View, room: int) -> None:
    """Check a view alone: its size, its legality, and that the last user message is there."""
    check_size(view, Forms(view), room)
    check_legality(Forms(view))
    asked = last_user(ctx, list(ctx.messages()))
    assert asked is None or asked in [message.index for message in view.messages]


def check_size(view: View, forms: Forms, room: int) -> None:
    """Check that every form is within the budget, and that `view.tokens` is the cost of the form for OpenAI."""
    assert view.tokens <= room
    assert view.tokens == sum(part.tokens for part in view.parts)
    assert count_request(Request("responses", {"input": forms.responses})) <= room
    assert count_request(Request("anthropic", forms.anthropic)) <= room
    openai = count_request(Request("chat", {"messages": forms.openai}))
    assert openai <= view.tokens
    if all(map(_is_plain, view.messages)):
        assert openai == view.tokens


def _is_plain(message: Message) -> bool:
    """Return whether all forms have the message in the same words."""
    objects = all(call.arguments.startswith("{") and call.arguments.endswith("}") for call in message.tool_calls)
    return objects and not message.name and (message.content is None or isinstance(message.content, str))


def check_legality(forms: Forms) -> None:
    """Check that all forms are legal by the library's own checker."""
    assert check_legal(forms.openai, "openai") == []
    assert check_legal(forms.responses, "responses") == []
    assert check_legal(forms.anthropic, "anthropic") == []


def check_requests(view: View, model: Model, room: int) -> None:
    """Check that the strict provider accepts the view in all forms, with all thinking that is sent back."""
    for api in APIS:
        is_own = api == model.api
        state = model.state if is_own else State(prefill=True, secret=model.state.secret)
        state.limit = room
        assert check_request(api, model.ask(view, api), state) is None


def check_prompts(ctx: Context, now: Seen) -> None:
    """Check that every pinned prompt is whole in the view and in the forms."""
    if not now.system:
        return
    said = [message.content for message in now.view.messages if message.role == "system"]
    sent = [message["content"] for message in now.forms.openai if message["role"] == "system"]
    prompt = now.forms.anthropic.get("system", "")
    apart = prompt if isinstance(prompt, str) else "\n".join(block["text"] for block in prompt)
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


def check_reach(ctx: Context, now: Seen, said: list[Message], *, seek: bool) -> None:
    """Check that every message without a mark is on a page that is shown, or below one, unless it was archived.

    With `seek`, the words of one that is not shown must find its page.
    """
    if not now.steady:  # it has lines of chapters that were made for this view alone
        return
    shown = {page.index for page in now.view.pages}
    pages = {ctx.conversation.page_of(message.index): message for message in said}
    for index in pages.keys() - shown:
        assert index is not None
        chain = [ctx.pages.get_page(index), *ctx.pages.ancestors(index)]
        if index.startswith("own-") or (index.startswith("sys-") and not now.system):
            continue
        is_archived = any(page.lifecycle is not Lifecycle.ACTIVE for page in chain)
        assert is_archived or any(page.index in shown for page in chain), f"{index} cannot be reached"
        if seek:
            check_found(ctx, [page.index for page in chain], pages[index])
            seek = False


def check_found(ctx: Context, chain: list[str], message: Message) -> None:
    """Check that the identifier in a message finds its page, a folder above it, or another page that has it."""
    names = [word for word in message.text.split() if word.startswith("ref") and word.endswith("q")]
    for name in names[:1]:
        found = [hit.index for hit in ctx.find(name, limit=5)]
        assert any(index in chain or name in ctx.pages.detail(index) for index in found), f"{name} is not found"


# Two views


def check_reopened(walk: Walk, now: Seen, options: Values) -> None:
    """Check that the same state gives the same bytes on every handle.

    What is recalled is sought after a fold, so it is compared with a view that this handle draws again.
    """
    view = walk.ctx.render(**options) if "recall" in options else now.view
    again = walk.open().render(**options)
    assert Forms(again).text() == Forms(view).text()
    assert again.tokens == view.tokens


def check_after(run: Run, now: Seen) -> None:
    """Check the laws of a view and the one before it."""
    before, walk = run.last, run.walk
    if before is None or walk.looked:
        return
    same = now.steady and before.steady and now.system is before.system
    if same and not walk.edited and now.view.fold is None:
        check_prefix(before, now, is_answered="result" in walk.trace[-2:])
    assert now.view.shared_prefix == common_tokens(before.view, now.view)


def check_prefix(before: Seen, now: Seen, *, is_answered: bool) -> None:
    """Check that between folds a view only grows at its end, apart from the tail.

    With `is_answered`, a waiting call got its result. It may be in the last exchange, or in the last folded line, which
    has the tokens of its page.
    """
    tail = sum(len(part.messages) for part in before.view.tail)
    start = before.forms.openai[: len(before.forms.openai) - tail]
    waiting = next((n for n, m in enumerate(start) if m["role"] == "tool" and m["content"] == NO_RESULT), None)
    if waiting is not None:
        start = start[: max(n for n in range(waiting) if start[n]["role"] == "assistant")]
    elif is_answered and before.view.parts[-1 - len(before.view.tail)].kind == "folded":
        start = start[:-1]
    assert now.forms.openai[: len(start)] == start


def common_tokens(before: View, now: View) -> int:
    """Return the tokens of the parts that two views have in common at their beginning.

    The tail of the view before counts if it stays; the tail of the new one never counts.
    """
    stable = now.parts[: len(now.parts) - len(now.tail)]
    same = 0
    while same < min(len(before.parts), len(stable)) and _words(before.parts[same]) == _words(stable[same]):
        same += 1
    stays = same == len(before.parts)
    return sum(part.tokens for part in stable[: same if stays else min(same, len(before.parts) - len(before.tail))])


def _words(part: Any) -> list[Any]:
    return [(m.role, m.content, m.tool_calls, m.tool_call_id, m.name) for m in part.messages]


def must_be_shown(ctx: Context, options: Values) -> int:
    """Return an upper bound of the required parts: prompts, pinned pages, hidden lines, notes, open calls."""
    total = 400
    for page in ctx.pages.list_pages():
        if page.index.startswith("own-") or (
            page.index.startswith("sys-") and not options.get("include_system_prompt", True)
        ):
            continue
        is_line = page.visibility is Visibility.HIDDEN or not page.index.startswith("usr-")
        total += page.tokens if page.pinned else 0
        total += 60 if is_line and page.effective is Lifecycle.ACTIVE else 0
    return total + 40 * len(ctx.pending_calls())
