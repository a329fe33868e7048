"""How a view is to be drawn, and when the conversation is folded."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from msgspec import Struct, StructMeta

from quire.errors import InvalidValue, short_repr

DEFAULT_BUDGET = 128_000
KEPT_TURNS = 3
TARGET_SHARE = 0.4
COLD_SHARE = 0.6
LINES_SHARE = 0.2
RECALL_SHARE = 0.25

Summariser = Callable[[str, int], str | Awaitable[str | None] | None]
"""A function of the caller's: from a text, `User: …`, `Assistant: …`, to a summary of at most so many tokens."""


_OTHER_WORDS = {"budget": "max_tokens", "tokens": "max_tokens", "limit": "max_tokens"}


def _meant(name: str, known: Sequence[str]) -> str:
    """What somebody perhaps meant by an option that there is not, as a sentence."""
    from difflib import get_close_matches

    near = [word for word in (_OTHER_WORDS.get(name),) if word in known] or get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class _Named(StructMeta):
    """Of options that are given by name: one that there is not is refused with those there are."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        unknown = [name for name in options if name not in self.__struct_fields__]
        if unknown:
            known = ", ".join(self.__struct_fields__)
            meant = _meant(min(unknown), self.__struct_fields__)
            raise InvalidValue(f"There is no option {short_repr(min(unknown))}; options are {known}.{meant}")
        return super().__call__(*args, **options)


class RenderOptions(Struct, frozen=True, kw_only=True, metaclass=_Named):
    """What one view is to be like. Everything has a default; `max_tokens` is the context's budget.

    `reserve` keeps so many tokens free, for the reply and for tool schemas. A `preview`, like a view at another
    `max_tokens`, writes nothing. With a `model` that is known to bill more than we count (`report_usage`), the budget
    is in its tokens. With `budget_line` the model is told in one line at the end how full its view is. `recall`
    brings back what matters for the last user message, in at most this share of the budget (True: a quarter).
    Raises `InvalidValue` for an option that there is not.
    """

    max_tokens: int | None = None
    include_system_prompt: bool = True
    include_obsolete: bool = False
    windows: Literal["tail", "inline"] = "tail"
    recall: float | bool | None = None
    reserve: int = 0
    preview: bool = False
    model: str | None = None
    budget_line: bool = False


class CompressionConfig(Struct, frozen=True, kw_only=True, metaclass=_Named):
    """When the conversation folds and how far. An explicit threshold or target is binding.

    By default it folds when the view would exceed the budget, down to 0.4 of it, and keeps the last three turns as far
    as they fit half of that. `keep_turns` changes how many; `sliding_window` folds whatever is older than the last so
    many turns, whenever it folds at all. Disabled, nothing is ever folded for good: a view that would be too large is
    shortened for itself alone.

    `cache_seconds` is how long the provider keeps a prefix. After a longer pause the whole view is paid for anyway, so
    one that takes more than 0.6 of the threshold folds then instead of soon after.

    A `summariser` is any function, plain or async, that is given the text of what was folded and how many tokens a
    summary of it may take. It runs in a thread of its own beside the turn; its summary takes its place at the next fold
    if the page is still the same. None, or an error, leaves the extracted one.
    """

    enabled: bool = True
    threshold: int | None = None
    target_tokens: int | None = None
    keep_turns: int = KEPT_TURNS
    sliding_window: int | None = None
    cache_seconds: float | None = None
    summariser: Summariser | None = None


def check_options(options: RenderOptions) -> RenderOptions:
    """The options if all of them make sense. Raises `InvalidValue`."""
    for field in ("include_system_prompt", "include_obsolete", "preview", "budget_line"):
        if not isinstance(getattr(options, field), bool):
            raise InvalidValue(f"{field} is {short_repr(getattr(options, field))}; True or False is needed.")
    if options.windows not in ("tail", "inline"):
        raise InvalidValue(f"windows is {short_repr(options.windows)}; use 'tail' or 'inline'.")
    share = options.recall
    if share is not None and not (isinstance(share, bool) or (isinstance(share, int | float) and 0 <= share <= 1)):
        raise InvalidValue(f"recall is {short_repr(share)}; a share of the budget from 0 to 1, or True, is needed.")
    if options.model is not None and not (isinstance(options.model, str) and options.model):
        raise InvalidValue(f"model is {short_repr(options.model)}; the name of a model as text is needed.")
    if options.max_tokens is not None:
        _count(options.max_tokens, "max_tokens")
    _count(options.reserve, "reserve")
    return options


def check_config(config: CompressionConfig) -> CompressionConfig:
    """The configuration if all of it makes sense. Raises `InvalidValue`."""
    if not isinstance(config, CompressionConfig):
        raise InvalidValue(f"compression is {short_repr(config)}; a CompressionConfig is needed.")
    if not isinstance(config.enabled, bool):
        raise InvalidValue(f"enabled is {short_repr(config.enabled)}; True or False is needed.")
    for field in ("threshold", "target_tokens", "sliding_window"):
        if getattr(config, field) is not None:
            _count(getattr(config, field), field)
    _count(config.keep_turns, "keep_turns")
    kept = config.cache_seconds
    if kept is not None and not (type(kept) in (int, float) and 0 < kept < float("inf")):
        raise InvalidValue(
            f"cache_seconds is {short_repr(kept)}; how long the provider keeps a prefix, above 0, is needed."
        )
    if config.summariser is not None and not callable(config.summariser):
        raise InvalidValue(
            f"summariser is {short_repr(config.summariser)}; a function of a text and a number is needed."
        )
    if config.threshold is not None and config.target_tokens is not None and config.target_tokens > config.threshold:
        raise InvalidValue(f"target_tokens is {config.target_tokens:,}; at most the threshold, {config.threshold:,}.")
    return config


def _count(value: object, field: str) -> int:
    if type(value) is not int or value < 0:
        raise InvalidValue(f"is {short_repr(value)}; a whole number from 0 is needed.", argument=field)
    return value
