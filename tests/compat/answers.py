"""The answers of quire on the contexts of a store, as JSON values.

Texts that later versions may reword are left out: errors, the rule of `why`, descriptions of tools.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

import quire
from quire.view.explain import Why
from tests.compat.make_store import open_context

FORMS: Mapping[str, dict[str, Any]] = {"own": {}, "small": {"max_tokens": 550}, "smallest": {"max_tokens": 370}}
"""Views that are stored in the form of every provider."""
VIEWS: Mapping[str, dict[str, Any]] = {
    "recall": {"recall": True},
    "told": {"budget_line": True, "model": "gpt-5-mini"},
    "obsolete": {"include_obsolete": True, "windows": "inline"},
    "no prompt": {"include_system_prompt": False, "reserve": 100},
}
"""Views that are stored in the form of OpenAI only."""
QUERIES = (
    "window seat",
    "靠窗",
    "train*",
    '"a string"',
    "海",
    "which test fails",
    "tea 面包",
    "sky",
    "swordfish",
    "4111",
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_CALL = re.compile(r"[\w.]+\(.*\)")
_DIGITS = 4


def answers_of(storage: quire.Storage) -> dict[str, Any]:
    """Return the answers of quire on every context of a store. This may write an index or vectors to the store."""
    with quire.Library(storage) as library:
        return {name: _of_context(library, name) for name in library.list()}


def text_of(value: Any, depth: int = 3) -> str:
    """Return the value as JSON text, in the form that is stored and compared: deeper levels are on one line."""
    if depth and isinstance(value, dict) and value:
        inner = ",\n".join(
            f"{json.dumps(str(key), ensure_ascii=False)}: {text_of(value[key], depth - 1)}" for key in value
        )
        return f"{{\n{inner}\n}}"
    if depth and isinstance(value, list) and value:
        return "[\n" + ",\n".join(text_of(item, 0) for item in value) + "\n]"
    return json.dumps(value, ensure_ascii=False)


def without_times(value: Any) -> Any:
    """Return the value with the same word in place of every time."""
    return json.loads(_TIME.sub("TIME", json.dumps(value, ensure_ascii=False)))


def history_of(ctx: quire.Context) -> list[Any]:
    """Return the journal as `audit` writes it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        ctx.audit(path)
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _of_context(library: quire.Library, name: str) -> dict[str, Any]:
    with open_context(library, name) as ctx:
        own = ctx.render(preview=True)
        return {
            "info": msgspec.to_builtins(library.info(name)),
            "check": [msgspec.to_builtins(problem) for problem in ctx.check()],
            "marshal": ctx.pages.marshal().decode(),
            "views": {key: _view(ctx.render(preview=True, **options)) for key, options in FORMS.items()},
            "with cache marks": own.anthropic(cache=True),
            "more views": {key: _short(ctx.render(preview=True, **options)) for key, options in VIEWS.items()},
            "messages": msgspec.to_builtins(list(ctx.messages(all=True))),
            "shown messages": [message.index for message in ctx.messages()],
            "marks": {message.index: ctx.conversation.mark_of(message.index) for message in ctx.messages(all=True)},
            "batches": msgspec.to_builtins(ctx.conversation.mark_map()),
            "pending calls": msgspec.to_builtins(ctx.pending_calls()),
            "items": msgspec.to_builtins(list(ctx.items())),
            "dump": ctx.dump().splitlines(),
            "pages": [_page(page) for page in ctx.pages.list_pages()],
            "history": history_of(ctx),
            "checkpoints": ctx.pages.checkpoints(),
            "stats": msgspec.to_builtins(ctx.stats()),
            "why": {page.index: _why(ctx.why(page.index, own)) for page in ctx.pages.list_pages()},
            "find": {query: [_hit(hit) for hit in ctx.find(query, 4)] for query in QUERIES},
            "agent finds": {query: [hit.index for hit in ctx.agent.find(query, 4)] for query in QUERIES},
        }


def _view(view: quire.View) -> dict[str, Any]:
    return {
        **_short(view),
        "anthropic": view.anthropic(),
        "responses": view.responses(),
    }


def _short(view: quire.View) -> dict[str, Any]:
    return {
        "tokens": view.tokens,
        "kinds": view.by_kind(),
        "pages": [f"{shown.index} {shown.granularity} {shown.tokens}" for shown in view.pages],
        "openai": view.openai(),
    }


def _page(page: quire.Page) -> str:
    numbers = (page.tokens, page.summary_tokens, page.created_seq, page.changed_seq, int(page.effective))
    return f"{page.index} {' '.join(map(str, numbers))}"


def _why(why: Why) -> str:
    call = _CALL.match(why.call)
    return f"{why.shown} {why.tokens} {call[0] if call else ''}"


def _hit(hit: quire.Hit) -> dict[str, Any]:
    return {**msgspec.to_builtins(hit), "score": round(hit.score, _DIGITS)}
