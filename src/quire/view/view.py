"""View: what the model sees, in every provider's form, with what it costs and what it shows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from quire.model.messages import Message, Provider
from quire.model.pages import PageIndex
from quire.providers import format_messages
from quire.providers.anthropic import system
from quire.providers.common import make_call_ids_distinct
from quire.providers.parts import drop_foreign_thinking
from quire.view.cost import Bill, Price, why_not_cached
from quire.view.parts import Folded, Part, Shown, total_tokens
from quire.view.view_cache import shared_tokens

_MARKS = 4  # as many cache marks as Anthropic takes


class Difference(Struct, frozen=True, kw_only=True):
    """One page that two views show differently: what happened to it, and the tokens it takes now and took before."""

    page: PageIndex
    change: str
    tokens: int
    before: int


class AnthropicRequest(list[dict[str, Any]]):
    """The messages in Anthropic's form, with what stands apart there: `system`.

    It is the list for `messages=`, and it can be handed over whole: `client.messages.create(**view.anthropic(), …)`.
    """

    def __init__(self, messages: Sequence[dict[str, Any]], prompt: str | list[dict[str, Any]]) -> None:
        super().__init__(messages)
        self.system = prompt

    def keys(self) -> list[str]:
        """The names under which the parts are handed over."""
        return ["system", "messages"] if self.system else ["messages"]

    def __getitem__(self, key: Any) -> Any:
        if key == "system":
            return self.system
        return list(self) if key == "messages" else super().__getitem__(key)


class View:
    """What the model sees: messages within the budget, legal for every provider.

    `tokens` is what they cost, `parts` the pieces they are made of, `pages` the pages shown and how much of each,
    `shared_prefix` the tokens this view begins with that the one before began with too, `fold` what was folded just
    before it was drawn, and `tail` the pieces at its end that change from view to view and are in no shared prefix.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        budget: int,
        tokens: int | None = None,
        shared_prefix: int = 0,
        fold: Folded | None = None,
        seq: int = 0,
        previous: Sequence[Part] = (),
        tail: Sequence[Part] = (),
        turned: Mapping[int, str] | None = None,
    ) -> None:
        self.parts = (*parts, *tail)
        self.tail = tuple(tail)
        self.tokens = (total_tokens(parts) if tokens is None else tokens) + total_tokens(tail)
        self.budget = budget
        self.shared_prefix = shared_prefix
        self.fold = fold
        self.seq = seq
        self._previous = previous
        self._turned = turned

    def __repr__(self) -> str:
        return f"<View of {len(self.messages)} messages, {self.tokens:,} of {self.budget:,} tokens>"

    @property
    def messages(self) -> list[Message]:
        """The messages, provider-neutral."""
        return [message for part in self.parts for message in part.messages]

    @property
    def pages(self) -> list[Shown]:
        """The pages shown, in order, each with how much of it is."""
        return [shown for part in self.parts for shown in part.pages]

    def openai(self) -> list[dict[str, Any]]:
        """The messages for OpenAI chat completions, as fresh values."""
        fresh: list[dict[str, Any]] = to_builtins([value for part in self.parts for value in part.openai()])
        return fresh

    def responses(self, *, model: str | None = None) -> list[dict[str, Any]]:
        """The items for the OpenAI Responses API; for a `model`, without the reasoning of others."""
        return format_messages(
            drop_foreign_thinking(make_call_ids_distinct(self.messages), "responses", model), "responses"
        )

    def anthropic(self, *, cache: bool = False, model: str | None = None) -> AnthropicRequest:
        """The messages for Anthropic, with the system prompt beside them; with `cache`, marked where caching pays.

        For a `model`, without the thinking of others, whose signatures it would refuse.
        """
        messages = drop_foreign_thinking(make_call_ids_distinct(self.messages), "anthropic", model)
        written = format_messages(messages, "anthropic")
        prompt = system(messages)
        if cache:
            prompt = _marked_prompt(prompt)
            written = self._marked(written, model, _MARKS - bool(prompt))
        return AnthropicRequest(written, prompt)

    def _marked(self, written: list[dict[str, Any]], model: str | None, most: int) -> list[dict[str, Any]]:
        """The messages with cache marks before the tail: a mark in it would be of no use to the next view."""
        if not self.tail:
            return _marked(written, most)
        steady = [message for part in self._before_tail() for message in part.messages]
        marked = format_messages(drop_foreign_thinking(make_call_ids_distinct(steady), "anthropic", model), "anthropic")
        if marked:
            place = len(marked) - 1
            extra = _blocks(written[place])[len(_blocks(marked[place])) :]
            _marked(marked, most)
            marked[place]["content"] = [*_blocks(marked[place]), *extra]
        return [*marked, *written[len(marked) :]]

    def _before_tail(self) -> Sequence[Part]:
        return self.parts[: len(self.parts) - len(self.tail)]

    def by_kind(self) -> dict[str, int]:
        """The tokens of each kind of piece."""
        found: dict[str, int] = {}
        for part in self.parts:
            found[part.kind] = found.get(part.kind, 0) + part.tokens
        return found

    def bill(self, price: Price | None = None, *, marked: bool = False) -> Bill:
        """What sending this view costs, and why: what the last view began with is read from the prompt cache.

        With `marked` the rest is written to it, as with Anthropic's cache marks; else it is paid as it is.
        """
        rate = price or Price()
        fresh = self.tokens - self.shared_prefix
        written = fresh - total_tokens(self.tail) if marked else 0
        return Bill(
            read=self.shared_prefix,
            written=written,
            plain=fresh - written,
            cost=rate.read * self.shared_prefix + rate.write * written + rate.plain * (fresh - written),
            why=why_not_cached(self._previous, self._before_tail(), self.fold, self._turned),
        )

    def cost(self, price: Price | None = None, *, marked: bool = False) -> float:
        """What sending this view costs, in plain tokens: the sum of its `bill`."""
        return self.bill(price, marked=marked).cost

    def following(self, other: "View") -> "View":
        """This view as if `other` had been sent before it: `shared_prefix` and `bill` are measured against that one."""
        steady, before = self._before_tail(), other._before_tail()
        tokens = total_tokens(steady)
        return View(
            steady,
            budget=self.budget,
            tokens=tokens,
            shared_prefix=shared_tokens(before, steady, tokens),
            fold=self.fold,
            seq=self.seq,
            previous=before,
            tail=self.tail,
        )

    def places(self, provider: Provider) -> list[int]:
        """Where each of the parts begins in a provider's list of messages; -1 for what stands apart there."""
        places, total, is_prompt = [], 0, provider == "anthropic"
        for part in self.parts:
            is_prompt = is_prompt and all(message.role == "system" for message in part.messages)
            if is_prompt:
                places.append(-1)
                continue
            written = part.openai() if provider == "openai" else format_messages(part.messages, provider)
            joins = provider == "anthropic" and total > 0 and bool(part.messages) and part.messages[0].joined
            places.append(total - joins)
            total += len(written) - joins
        return places

    def diff(self, other: "View") -> list[Difference]:
        """The pages that this view shows and another does not, or not so, and the other way round."""
        now, before = _by_page(self), _by_page(other)
        return [
            *(_difference(index, before.get(index), shown) for index, shown in now.items() if _differ(before, shown)),
            *(_difference(index, shown, None) for index, shown in before.items() if index not in now),
        ]


def _by_page(view: View) -> dict[PageIndex, Shown]:
    return {shown.index: shown for shown in view.pages}


def _differ(before: Mapping[PageIndex, Shown], shown: Shown) -> bool:
    old = before.get(shown.index)
    return old is None or (old.granularity, old.tokens) != (shown.granularity, shown.tokens)


def _difference(index: PageIndex, before: Shown | None, now: Shown | None) -> Difference:
    if before is None:
        change = f"shown {now.granularity}" if now else ""
    elif now is None:
        change = "gone"
    else:
        change = f"{before.granularity} → {now.granularity}"
    return Difference(page=index, change=change, tokens=now.tokens if now else 0, before=before.tokens if before else 0)


def _marked_prompt(prompt: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if not prompt:
        return prompt
    blocks: list[dict[str, Any]] = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else prompt
    return [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]


def _marked(messages: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Marks on the last messages: the next view begins with them."""
    for message in list(_last_ones(messages, most)):
        blocks = _blocks(message)
        message["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
    return messages


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _last_ones(messages: list[dict[str, Any]], most: int) -> Iterator[dict[str, Any]]:
    for message in messages[: -most - 1 : -1]:
        blocks = message["content"]
        if isinstance(blocks, str) or blocks[-1].get("type") not in ("thinking", "redacted_thinking"):
            yield message
