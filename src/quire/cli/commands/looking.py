"""Looking at pages: the tree, one page, a search, and what there is."""

import argparse

import quire
from quire.cli.charts.scale import short
from quire.cli.command import Command
from quire.cli.opening import add_context, context_of
from quire.cli.out import Out
from quire.cli.tree import DEPTH, MOST_CHILDREN, draw_tree, pages_of
from quire.cli.values import hit_values, segment_values
from quire.cli.visible import visible
from quire.cli.width import cut, cut_around, width
from quire.errors import InvalidValue
from quire.model.page_json import STATES, page_values
from quire.model.pages import ContentsPage, Lifecycle, Page
from quire.view.explain import Stats

_LIFECYCLES: dict[str, Lifecycle] = {word: lifecycle for lifecycle, word in STATES.items()}


def _add_tree(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("index", nargs="?", metavar="PAGE", help="only this page and what is below it")
    parser.add_argument("--depth", type=int, default=DEPTH, metavar="N", help="levels below the root (default: all)")
    parser.add_argument(
        "--limit", type=int, default=MOST_CHILDREN, metavar="N", help="pages of each folder (default: %(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="every page, however many there are")


def _tree(options: argparse.Namespace, out: Out) -> None:
    chosen = {"index": options.index, "depth": options.depth, "most": options.limit, "everything": options.all}
    with context_of(options) as context:
        if out.json:
            for depth, page in pages_of(context.pages, **chosen):
                out.value({"depth": depth, **page_values(page)})
            return
        for line in draw_tree(context.pages, out.paint, out.columns, **chosen):
            out.line(line)


def _add_page(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("index", metavar="PAGE", help="a page's index, such as usr-7")


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_page(parser)
    parser.add_argument("--body", action="store_true", help="nothing but the page's text")


def _show(options: argparse.Namespace, out: Out) -> None:
    with context_of(options) as context:
        pages = context.pages
        page = pages.get_page(options.index)
        if isinstance(page, ContentsPage):
            children = pages.children(page.index, limit=MOST_CHILDREN)
            detail = ""
        else:
            children, detail = [], pages.detail(page.index)
        if out.json:
            path = [above.index for above in reversed(pages.ancestors(page.index))]
            below = {"first_children": [child.index for child in children]}
            body = below if isinstance(page, ContentsPage) else {"detail": detail}
            out.value({**page_values(page), "path": path, **body})
            return
        if not options.body:
            out.facts(_facts(page, pages.ancestors(page.index)))
            out.line()
        for child in children:
            out.line(f"{out.paint.cyan(child.index)} {cut(visible(child.name), out.columns - width(child.index) - 1)}")
        if isinstance(page, ContentsPage) and page.child_count > len(children):
            out.line(out.paint.dim(f"… {page.child_count - len(children):,} more"))
        if detail:
            out.line(out.safe(detail))


def _facts(page: Page, above: list[Page]) -> list[tuple[str, str]]:
    state = [STATES[page.effective], page.visibility.name.lower(), *(["pinned"] if page.pinned else [])]
    kind = "contents" if isinstance(page, ContentsPage) else page.form.name.lower()
    facts = [
        ("page", page.index),
        ("name", page.name),
        ("summary", page.description),
        ("kind", kind),
        ("state", ", ".join(state)),
        ("below", " › ".join(found.index for found in reversed(above)) or (f"(cold, from {page.home})")),
        ("tokens", f"{page.tokens:,}, as a line {page.summary_tokens:,}"),
        ("written", f"{page.created_at:%Y-%m-%d %H:%M:%S} by {page.author}, entry {page.created_seq}"),
        ("changed", f"{page.updated_at:%Y-%m-%d %H:%M:%S}, entry {page.changed_seq}"),
    ]
    root = page.parent is None and page.home is None
    return [fact for fact in facts if fact[1] and not (root and fact[0] == "below")]


def _add_find(parser: argparse.ArgumentParser) -> None:
    add_context(parser)
    parser.add_argument("query", metavar="QUERY", help='words; "quoted words" must stand in a row, begin* may go on')
    parser.add_argument("--limit", type=int, default=10, metavar="N", help="at most so many (default: %(default)s)")
    parser.add_argument("--segment", metavar="ID", help="only pages of this segment")
    kinds = ("folder", "leaf", "exchange", "chapter", "summary", "text")
    parser.add_argument("--kind", choices=kinds, help="only pages of this kind")
    parser.add_argument("--role", choices=("user", "assistant", "system", "tool"), help="only what this role said")
    parser.add_argument("--lifecycle", choices=tuple(_LIFECYCLES), help="only pages that stand so")


def _find(options: argparse.Namespace, out: Out) -> None:
    if options.limit < 1:
        raise InvalidValue(f"--limit is {options.limit}; a whole number from 1 is needed.")
    lifecycle = _LIFECYCLES.get(options.lifecycle or "")
    with context_of(options) as context:
        hits = context.find(
            options.query,
            options.limit,
            segment=options.segment,
            kind=options.kind,
            role=options.role,
            lifecycle=lifecycle,
        )
        states = [] if out.json else [_archived(context.pages.get_page(hit.index)) for hit in hits]
    if out.json:
        for hit in hits:
            out.value(hit_values(hit))
        return
    if not hits:
        out.note(f"nothing found for {options.query!r}")
    for hit, state in zip(hits, states, strict=True):
        _print_hit(hit, f"  [{state}]" if state else "", out)


def _archived(page: Page) -> str:
    """The words for a page that is not in the window, as the tree has them; none for one that may be."""
    if page.effective is Lifecycle.ACTIVE:
        return ""
    if page.effective is Lifecycle.COLD_ARCHIVED:
        return "in the cold archive"
    return "archived" if page.lifecycle is Lifecycle.HOT_ARCHIVED else "folded away"


def _print_hit(hit: quire.Hit, state: str, out: Out) -> None:
    paint, score = out.paint, f"score {short(hit.score)}"
    name = cut(visible(hit.name), max(12, out.columns - width(f"{hit.index}  {score}  {state}")))
    out.line(f"{paint.cyan(hit.index)}  {paint.yellow(score)}  {paint.bold(name)}{paint.dim(state)}")
    if hit.snippet:
        snippet = out.safe(hit.snippet)
        out.line(f"   {_marked(cut_around(snippet, snippet.find('«'), out.columns - 3), out)}")


def _marked(snippet: str, out: Out) -> str:
    """A snippet with what was found in colour; the marks stay, so that it says the same without."""
    pieces = snippet.replace("»", "»\0").replace("«", "\0«").split("\0")
    return "".join(out.paint.green(piece) if piece.startswith("«") else piece for piece in pieces)


def _stats(options: argparse.Namespace, out: Out) -> None:
    with context_of(options) as context:
        stats = context.stats()
        segments = context.pages.list_segments()
        messages = len(context.messages(all=True))
        seq, name = context.seq, context.name
    if out.json:
        counted = [{**segment_values(segment), "tokens": stats.segments[segment.id]} for segment in segments]
        out.value({"name": name, "seq": seq, "messages": messages, "stats": stats, "segments": counted})
        return
    out.facts(
        [
            ("context", name),
            ("entries", f"{seq:,}"),
            ("messages", f"{messages:,}"),
            ("items", _items(stats)),
            ("windows", f"{stats.window_items:,}"),
            ("tokens", f"{stats.estimated_tokens:,}"),
        ]
    )
    out.line()
    rows = [
        (segment.id, segment.name, segment.type.name, segment.permission.name, f"{stats.segments[segment.id]:,}")
        for segment in segments
    ]
    out.table(("segment", "name", "type", "permission", "tokens"), rows, right=(4,))
    if stats.usage:
        out.line()
        usage = [(model, f"{used.factor:.3f}", f"{used.reports:,}") for model, used in stats.usage.items()]
        out.table(("model", "bills × counted", "reports"), usage, right=(1, 2))


def _items(stats: Stats) -> str:
    """How many prompts, exchanges and summaries there are, and how many of them an edit took out."""
    out = f"; edits took {stats.obsolete_items:,} more out" if stats.obsolete_items else ""
    return f"{stats.active_items:,} in the conversation (prompts, exchanges, summaries){out}"


COMMANDS = {
    "tree": Command(
        _tree,
        _add_tree,
        (
            "quire tree agent.db --context support-42",
            "quire tree agent.db usr-0 --depth 2 --limit 10",
            "quire tree agent.db --all --json | jq -r .name",
        ),
        "The first pages of each folder are shown, about a thousand in all, the upper levels first; --all shows all.",
    ),
    "show": Command(_show, _add_show, ("quire show agent.db usr-7", "quire show agent.db mem-3 --body > note.txt")),
    "find": Command(
        _find,
        _add_find,
        ("quire find agent.db 'replica port'", "quire find agent.db 退款 --role user --limit 3"),
    ),
    "stats": Command(_stats, add_context, ("quire stats agent.db", "quire stats agent.db --json | jq .stats")),
}
