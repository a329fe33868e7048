"""Facts after folding: every fact of folded text is in a summary or found by one search; on recorded conversations."""

from collections.abc import Iterator

import quire
from bench.figures import Figure
from bench.traces import conversation, system
from quire import ContentsPage, Context, DetailPage
from quire.view.fold.facts import extract_facts

BUDGET = 8_000
_HITS = 5


def run() -> list[Figure]:
    """Search every fact of the folded text in five conversations of 400 messages at 8k."""
    asked = kept = found = summaries = folded = 0
    for start in range(0, 200, 40):
        ctx = quire.open("memory:", budget=BUDGET)
        ctx.system(system())
        for message in conversation(400, start):
            ctx.add(message)
            ctx.render()
        lines = dict(_lines(ctx))
        summaries += sum(page.summary_tokens for page in _lowest(ctx))
        folded += sum(page.tokens for page in _lowest(ctx))
        for text, above in lines.items():
            for fact in {fact for fact, _ in extract_facts(text)}:
                asked += 1
                is_kept = any(fact in line for line in above)
                kept += is_kept
                found += is_kept or _is_found(ctx, fact)
    return [
        Figure(
            "facts of folded text neither in a summary nor among five hits",
            100 * (1 - found / asked),
            "%",
            0,
            f"of {asked:,} in long/8k; {100 * kept / asked:.0f} % are in a summary",
        ),
        Figure("tokens of summaries, share of the folded tokens", 100 * summaries / folded, "%", 10, "lowest chapters"),
    ]


def _lines(ctx: Context) -> Iterator[tuple[str, list[str]]]:
    """Yield the text of every folded exchange, with the names and summaries above it."""
    for page in ctx.pages.list_pages("usr"):
        if isinstance(page, DetailPage) and page.effective is not quire.Lifecycle.ACTIVE and page.message_count:
            above = [f"{chapter.name} {chapter.description}" for chapter in ctx.pages.ancestors(page.index)]
            yield ctx.pages.detail(page.index), above


def _lowest(ctx: Context) -> Iterator[ContentsPage]:
    """Yield the chapters that hold exchanges."""
    for page in ctx.pages.list_pages("usr"):
        if isinstance(page, ContentsPage) and page.index != "usr-0":
            children = ctx.pages.children(page.index)
            if all(isinstance(child, DetailPage) for child in children):
                yield page


def _is_found(ctx: Context, fact: str) -> bool:
    """Return whether one of the first hits for a fact contains it."""
    wanted = fact.casefold()
    for hit in ctx.find(fact, limit=_HITS):
        page = ctx.pages.get_page(hit.index)
        body = ctx.pages.detail(hit.index) if isinstance(page, DetailPage) else ""
        if wanted in f"{page.name} {page.description} {body}".casefold():
            return True
    return False
