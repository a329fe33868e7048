"""`View`: the messages that a model gets, in every provider's form, with their cost and the pages they show."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from quire.model.messages import Message, Provider
from quire.model.pages import PageIndex
from quire.providers import format_request
from quire.providers.anthropic import join_messages, prompt_length, system, to_blocks
from quire.providers.legal_form import join_items, make_legal, remove_marks
from quire.providers.rewrites import drop_foreign_thinking
from quire.view.cost import Bill, Price, why_not_cached
from quire.view.parts import (
    FoldResult,
    OpenAIForm,
    RecalledPage,
    Request,
    ShownPage,
    ViewPart,
    tokens_by_kind,
    total_tokens,
)
from quire.view.view_cache import sent_before, shared_parts

_MAX_MARKS = 4
"""The most cache marks that Anthropic accepts."""


class Difference(Struct, frozen=True, kw_only=True):
    """A page that two views show differently: the change, and its tokens now and before."""

    page: PageIndex
    change: str
    tokens: int
    before: int


class View:
    """The messages that a model gets: within the budget, and legal for every provider.

    `tokens` are their tokens, `parts` the parts they come from, and `pages` the pages shown, each with its granularity.
    `shared_prefix` is the number of tokens that this view and the one before have in common at the beginning. `fold` is
    the fold that was committed just before. `tail` has the parts at the end that are new: windows that changed, and
    recalled pages. When the reply is added, they stay before it until the next fold.
    """

    def __init__(
        self,
        parts: Sequence[ViewPart],
        *,
        budget: int,
        tokens: int | None = None,
        shared_prefix: int = 0,
        fold: FoldResult | None = None,
        seq: int = 0,
        previous: Sequence[ViewPart] = (),
        tail: Sequence[ViewPart] = (),
        changes: Mapping[int, str] | None = None,
        request: Request | None = None,
        form: OpenAIForm | None = None,
    ) -> None:
        self.parts = (*parts, *tail)
        self._form = form or OpenAIForm()
        self.tail = tuple(tail)
        self.tokens = total_tokens(self.parts) if tokens is None else tokens + (total_tokens(tail) if tail else 0)
        self.budget = budget
        self.shared_prefix = shared_prefix
        self.fold = fold
        self.seq = seq
        self._previous = previous
        self._changes = changes or {}
        self.request = request

    def __repr__(self) -> str:
        return f"<View of {len(self.messages)} messages, {self.tokens:,} of {self.budget:,} tokens>"

    @property
    def messages(self) -> list[Message]:
        """The messages, provider-neutral."""
        return [message for part in self.parts for message in part.messages]

    @property
    def pages(self) -> list[ShownPage]:
        """The pages shown, in order, each with its granularity."""
        return [shown for part in self.parts for shown in part.pages]

    @property
    def recalled(self) -> list[RecalledPage]:
        """The recalled pages, in order: where each comes from, its score and the reason. Earlier ones come first."""
        return [shown for shown in self.pages if isinstance(shown, RecalledPage)]

    def openai(self) -> list[dict[str, Any]]:
        """Return the messages for OpenAI chat completions, as new values."""
        return self._form.write(self.parts)

    def responses(self, *, model: str | None = None) -> list[dict[str, Any]]:
        """Return the items for the OpenAI Responses API; with a `model`, without the reasoning of other models."""
        own = self.messages
        messages = drop_foreign_thinking(own, "responses", model)
        joined = join_items([part.responses() for part in self.parts]) if messages is own else None
        return format_request(messages, "responses") if joined is None else joined

    def anthropic(self, *, cache: bool = False, model: str | None = None) -> dict[str, Any]:
        """Return the parameters for Anthropic: `client.messages.create(**view.anthropic(), …)`.

        They are `messages`, and `system` if there is a prompt. With `cache` they have cache marks where caching pays.
        With a `model`, the thinking of other models is left out, because Anthropic rejects their signatures.
        """
        own = self.messages
        messages = drop_foreign_thinking(own, "anthropic", model)
        if messages is own:
            start = prompt_length(messages)
            values = [value for part in self.parts for value in part.anthropic()][start:]
            written = make_legal(join_messages(messages[start:], to_builtins(values)), "anthropic")
        else:
            written = format_request(messages, "anthropic")
        prompt = remove_marks(system(messages))
        if cache:
            prompt = _mark_end(prompt) if prompt else prompt
            written = _mark_last(written, _MAX_MARKS - bool(prompt))
        return {"system": prompt, "messages": written} if prompt else {"messages": written}

    def _before_tail(self) -> Sequence[ViewPart]:
        return self.parts[: len(self.parts) - len(self.tail)]

    def by_kind(self) -> dict[str, int]:
        """Return the tokens of each kind of part."""
        return tokens_by_kind(self.parts)

    def bill(self, price: Price | None = None, *, marked: bool = False) -> Bill:
        """Return the cost of sending this view: the prefix shared with the last view is read from the prompt cache.

        With `marked` the rest is written to the cache, as with Anthropic's cache marks; otherwise it is paid in full.
        """
        rate = price or Price()
        fresh = self.tokens - self.shared_prefix
        written = fresh if marked else 0
        return Bill(
            read=self.shared_prefix,
            written=written,
            plain=fresh - written,
            cost=rate.read * self.shared_prefix + rate.write * written + rate.plain * (fresh - written),
            why=why_not_cached(self._previous, self._before_tail(), self.fold, self._changes),
        )

    def cost(self, price: Price | None = None, *, marked: bool = False) -> float:
        """Return the cost of sending this view in plain tokens: the total of its `bill`."""
        return self.bill(price, marked=marked).cost

    def following(self, other: "View") -> "View":
        """Return this view as if `other` had been sent before it: `shared_prefix` and `bill` compare with `other`."""
        stable = self._before_tail()
        before = sent_before(other._before_tail(), other.tail, stable)
        tokens = total_tokens(stable)
        return View(
            stable,
            budget=self.budget,
            tokens=tokens,
            shared_prefix=total_tokens(stable[: shared_parts(before, stable)]),
            fold=self.fold,
            seq=self.seq,
            previous=before,
            tail=self.tail,
        )

    def places(self, provider: Provider) -> list[int]:
        """Return the position of every part in a provider's list of messages; -1 for a part of the system prompt."""
        places, total, is_prompt = [], 0, provider == "anthropic"
        for part in self.parts:
            is_prompt = is_prompt and all(message.role == "system" for message in part.messages)
            if is_prompt:
                places.append(-1)
                continue
            if provider == "anthropic":
                written = join_messages(part.messages, part.anthropic())
            else:
                written = part.openai() if provider == "openai" else format_request(part.messages, provider)
            joins = provider == "anthropic" and total > 0 and bool(part.messages) and part.messages[0].joined
            places.append(total - joins)
            total += len(written) - joins
        return places

    def diff(self, other: "View") -> list[Difference]:
        """Return the pages that this view and another show differently, or that only one of them shows."""
        now, before = ({shown.index: shown for shown in view.pages} for view in (self, other))
        changes = []
        for index in now | before:
            shown, old = now.get(index), before.get(index)
            if shown is None:
                change = "gone"
            elif old is None:
                change = f"shown {shown.granularity}"
            elif (old.granularity, old.tokens) == (shown.granularity, shown.tokens):
                continue
            else:
                change = f"{old.granularity} → {shown.granularity}"
            tokens, earlier = (page.tokens if page else 0 for page in (shown, old))
            changes.append(Difference(page=index, change=change, tokens=tokens, before=earlier))
        return changes


def _mark_last(messages: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Set marks on the last messages: the next view begins with them."""
    for message in messages[: -most - 1 : -1]:
        if to_blocks(message["content"])[-1].get("type") not in ("thinking", "redacted_thinking"):
            message["content"] = _mark_end(message["content"])
    return messages


def _mark_end(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    blocks = to_blocks(content)
    return [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
