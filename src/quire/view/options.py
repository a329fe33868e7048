"""Options of a view, and the configuration of folding."""

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any, Literal, TypedDict

from msgspec import Struct

from quire.errors import InvalidValue, short_repr
from quire.model.pages import OptionsMeta
from quire.system.rules import check_bool, check_whole_number

TARGET_SHARE = 0.4
COLD_SHARE = 0.6
THINKING_SHARE = 0.85
"""At a user message, a view with thinking and tool calls folds above this share of the threshold, so that it seldom
has to fold inside the tool calls that follow."""
LINES_SHARE = 0.2
RECALL_SHARE = 0.9
OPENED_SHARE = 0.4
"""The share of the budget that opened pages of the conversation may take. A fold closes a larger page at once."""

Summariser = Callable[[str, int], str | Awaitable[str | None] | None]
"""A caller's function. It gets a text (`User: …`, `Assistant: …`) and the most tokens of the summary it returns."""


class RenderOptions(Struct, frozen=True, kw_only=True, metaclass=OptionsMeta):
    """The options of one view. Every option has a default; the default of `max_tokens` is the context's budget.

    `reserve` keeps so many tokens free for the reply and for tool schemas. A `preview` writes nothing, and neither does
    a view with another `max_tokens`. If a `model` is known to bill more than quire counts (`report_usage`), the budget
    is in its tokens. With `budget_line`, one line at the end shows the model how full its view is. `recall` brings back
    pages that matter for the last user message, in at most this share of the budget (True: as many as their scores
    suggest, in at most 0.9 of the budget and 6,000 tokens). A statement, a request, and a message of common words
    recall little: `recall_floor` is how rare the words must be. 0 turns this off, also for statements; 2 needs words
    twice as rare; by default it is 1 if `recall` is True, otherwise 0. `tools` are the schemas of the tools that are
    sent with the view: their tokens are reserved, and thinking that is bound to other tools is left out. Raises
    `UnknownOption`.
    """

    max_tokens: int | None = None
    include_system_prompt: bool = True
    include_obsolete: bool = False
    windows: Literal["tail", "inline"] = "tail"
    recall: float | bool | None = None
    recall_floor: float | None = None
    reserve: int = 0
    preview: bool = False
    model: str | None = None
    budget_line: bool = False
    tools: Sequence[Any] | None = None


class RenderFields(TypedDict, total=False):
    """The fields of `RenderOptions`, as keywords of `render`."""

    max_tokens: int | None
    include_system_prompt: bool
    include_obsolete: bool
    windows: Literal["tail", "inline"]
    recall: float | bool | None
    recall_floor: float | None
    reserve: int
    preview: bool
    model: str | None
    budget_line: bool
    tools: Sequence[Any] | None


class CompressionConfig(Struct, frozen=True, kw_only=True, metaclass=OptionsMeta):
    """The rules of folding: when the conversation folds, and how far. An explicit threshold or target is binding.

    By default the conversation folds when the view would exceed the budget, down to 0.4 of it. The last three turns are
    kept as far as they fit half of that. `keep_turns` sets how many are kept. With `sliding_window`, a fold takes all
    turns except this many newest ones. If folding is not `enabled`, a view that is too large is shortened without a
    commit.

    `cache_seconds` is how long the provider keeps a prefix. After a longer pause the whole view is paid in full anyway,
    so a view of more than 0.6 of the threshold is folded then instead of soon after.

    A `summariser` is a function, plain or async, that gets the folded text and the most tokens of a summary. It runs in
    a thread of its own while the turn continues. The next fold uses its summary if the page has not changed. If it
    returns None or raises an error, the extracted summary stays.
    """

    enabled: bool = True
    threshold: int | None = None
    target_tokens: int | None = None
    keep_turns: int = 3
    sliding_window: int | None = None
    cache_seconds: float | None = None
    summariser: Summariser | None = None


def check_budget(budget: object, argument: str = "budget") -> int:
    """Return the value if it can be the budget of a context. Raises `InvalidValue`."""
    if type(budget) is not int or not 0 < budget < 1 << 53:
        raise InvalidValue(f"is {short_repr(budget)}; a number of tokens above 0 is needed.", argument=argument)
    return budget


def check_options(options: RenderOptions) -> RenderOptions:
    """Return the options. Raise `InvalidValue` if one of them has an invalid value."""
    for name in ("include_system_prompt", "include_obsolete", "preview", "budget_line"):
        check_bool(getattr(options, name), name)
    if options.windows not in ("tail", "inline"):
        raise InvalidValue(f"is {short_repr(options.windows)}; use 'tail' or 'inline'.", argument="windows")
    share = options.recall
    if share is not None and not (isinstance(share, bool) or (isinstance(share, int | float) and 0 <= share <= 1)):
        raise InvalidValue(
            f"is {short_repr(share)}; a share of the budget from 0 to 1, or True, is needed.", argument="recall"
        )
    floor = options.recall_floor
    if floor is not None and not (type(floor) in (int, float) and 0 <= floor < inf):
        raise InvalidValue(f"is {short_repr(floor)}; a number from 0 is needed.", argument="recall_floor")
    if options.model is not None and not (isinstance(options.model, str) and options.model):
        raise InvalidValue(f"is {short_repr(options.model)}; the name of a model is needed.", argument="model")
    if options.max_tokens is not None:
        check_budget(options.max_tokens, "max_tokens")
    check_whole_number(options.reserve, "reserve")
    return options


def check_config(config: CompressionConfig) -> CompressionConfig:
    """Return the configuration. Raise `InvalidValue` if a field has an invalid value."""
    if not isinstance(config, CompressionConfig):
        raise InvalidValue(f"is {short_repr(config)}; a CompressionConfig is needed.", argument="compression")
    check_bool(config.enabled, "enabled")
    for name in ("threshold", "target_tokens", "sliding_window"):
        if getattr(config, name) is not None:
            check_whole_number(getattr(config, name), name)
    check_whole_number(config.keep_turns, "keep_turns")
    seconds = config.cache_seconds
    if seconds is not None and not (type(seconds) in (int, float) and 0 < seconds < float("inf")):
        raise InvalidValue(
            f"is {short_repr(seconds)}; a number of seconds above 0 is needed.", argument="cache_seconds"
        )
    if config.summariser is not None and not callable(config.summariser):
        raise InvalidValue(
            f"is {short_repr(config.summariser)}; a function of a text and a number is needed.", argument="summariser"
        )
    if config.threshold is not None and config.target_tokens is not None and config.target_tokens > config.threshold:
        raise InvalidValue(
            f"is {config.target_tokens:,}; at most the threshold, {config.threshold:,}, is allowed.",
            argument="target_tokens",
        )
    return config
