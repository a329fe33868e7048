"""Commands that read pages, and commands that change their state in one operation with one journal entry."""

import argparse
import sys
from collections.abc import Callable

import quire
from quire.cli.charts import short_number
from quire.cli.command import CONTEXT, PAGE, Argument, Command, argument, command, open_context
from quire.cli.terminal import Output, cut, cut_around, escape_control, pick, width
from quire.cli.tree import MAX_CHILDREN, MAX_DEPTH, draw_tree, tree_pages
from quire.errors import InvalidOperation, InvalidValue
from quire.model.pages import STATES, ContentsPage, Lifecycle, Page, page_to_dict, state_word
from quire.system import ContextSystem

_Describe = Callable[[Page], str]


def _page_command(
    operation: Callable[..., object],
    done: str | _Describe,
    example: str,
    *more: Argument,
    flags: tuple[str, ...] = (),
    unchanged: str | _Describe = "no change",
) -> Command:
    """Return a command that runs one operation on one page, with the given flags, and prints the new state."""

    @command(*PAGE, *more, examples=(f"quire {example}",))
    def run(options: argparse.Namespace, out: Output) -> None:
        with open_context(options) as context:
            before = context.seq
            operation(context.pages, options.index, **pick(options, *flags))
            page, seq = context.pages.get_page(options.index), context.seq
        words = unchanged if seq == before else done
        state = words if isinstance(words, str) else words(page)
        entry = "" if seq == before else f" {out.paint.dim(f'(entry {seq})')}"
        out.result(
            {"seq": seq, "changed": seq != before, "page": page_to_dict(page)},
            f"{out.paint.cyan(page.index)} {escape_control(page.name)}: {state}{entry}",
        )

    return run


def _describe_archived(page: Page) -> str:
    if page.lifecycle is Lifecycle.COLD_ARCHIVED:
        return "cold-archived: removed from the tree; recall brings it back"
    return "archived: in the tree, but not in the view; restore brings it back"


def _describe_not_cold(page: Page) -> str:
    if page.effective is Lifecycle.HOT_ARCHIVED:
        return f"no change: it is {state_word(page)}, not cold-archived; restore brings it back"
    return "no change"


run_expand = _page_command(ContextSystem.expand, "open", "expand agent.db usr-7")
run_hide = _page_command(ContextSystem.hide, "folded to one line", "hide agent.db usr-7")
run_pin = _page_command(ContextSystem.pin, "pinned", "pin agent.db mem-3")
run_unpin = _page_command(ContextSystem.unpin, "not pinned", "unpin agent.db mem-3")
run_archive = _page_command(
    ContextSystem.archive,
    _describe_archived,
    "archive agent.db mem-3 --cold",
    argument("--cold", action="store_true", help="remove it from the tree, with all pages below it"),
    flags=("cold",),
)
run_restore = _page_command(ContextSystem.restore, "back in the view", "restore agent.db mem-3")
run_recall = _page_command(
    ContextSystem.recall, "back in the tree", "recall agent.db mem-3", unchanged=_describe_not_cold
)


@command(
    *CONTEXT,
    argument("name", metavar="NAME", help="the name of the page"),
    argument("text", metavar="TEXT", help="the text of the page; - reads standard input"),
    argument("--folder", metavar="FOLDER", help="a folder or a segment (default: mem)"),
    argument("--summary", default="", metavar="TEXT", help="the summary of the page"),
    argument("--document", action="store_true", help="write a document, which agents cannot change, instead of a note"),
    argument("--pin", action="store_true", help="with --document: always show it in full"),
    examples=(
        "quire write agent.db port 'The replica listens on 5433.'",
        "quire write agent.db handbook - --document --summary 'rules for refunds' < handbook.md",
    ),
    about="If the folder has a page of this name, its text is replaced. The same text again changes nothing.",
)
def run_write(options: argparse.Namespace, out: Output) -> None:
    if options.pin and not options.document:
        raise InvalidOperation("--pin is for documents: add --document.")
    if options.folder is not None and options.document:
        raise InvalidOperation("--folder is for notes: remove --document.")
    try:
        text = sys.stdin.read() if options.text == "-" else options.text
    except UnicodeDecodeError as error:
        raise InvalidValue(f"Standard input is not UTF-8: {error}.") from None
    with open_context(options) as context:
        before = context.seq
        if options.document:
            index = context.document(options.name, text, options.pin, summary=options.summary)
        else:
            index = context.write(
                options.name, text, "mem" if options.folder is None else options.folder, options.summary
            )
        page, seq = context.pages.get_page(index), context.seq
    entry = "no change" if seq == before else f"written {out.paint.dim(f'(entry {seq})')}"
    out.result(
        {"seq": seq, "changed": seq != before, "page": page_to_dict(page)},
        f"{out.paint.cyan(page.index)} {escape_control(page.name)}: {entry}",
    )


@command(
    *CONTEXT,
    argument("source", metavar="PAGE", help="the page to move, with all pages below it"),
    argument("target", metavar="FOLDER", help="the folder to move it into"),
    argument("--before", metavar="PAGE", help="insert it before this page (default: at the end)"),
    examples=("quire move agent.db mem-3 mem-1", "quire move agent.db mem-3 mem-1 --before mem-2"),
    about="If the folder is in another segment, the pages get new indices; the command prints them.",
)
def run_move(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        moved = context.pages.move_page(options.source, options.target, options.before)
        page = context.pages.get_page(moved.get(options.source, options.source))
        seq = context.seq
    entry = out.paint.dim(f"(entry {seq})")
    out.result(
        {"seq": seq, "moved": moved, "page": page_to_dict(page)},
        f"{out.paint.cyan(page.index)} {escape_control(page.name)}: now in {page.parent} {entry}",
        *(f"   {old} → {new}" for old, new in moved.items()),
    )


_LIFECYCLES: dict[str, Lifecycle] = {word: lifecycle for lifecycle, word in STATES.items()}
_KINDS = ("folder", "leaf", "exchange", "chapter", "summary", "text")


@command(
    *CONTEXT,
    argument("index", nargs="?", metavar="PAGE", help="show only this page and the pages below it"),
    argument("--depth", type=int, default=MAX_DEPTH, metavar="N", help="levels to show (default: all)"),
    argument(
        "--limit", type=int, default=MAX_CHILDREN, metavar="N", help="pages of each folder (default: %(default)s)"
    ),
    argument("--all", action="store_true", help="show every page"),
    examples=(
        "quire tree agent.db --context support-42",
        "quire tree agent.db usr-0 --depth 2 --limit 10",
        "quire tree agent.db --all --json | jq -r .name",
    ),
    about="It shows the first pages of each folder, about a thousand in all, upper levels first. --all shows every"
    " page.",
)
def run_tree(options: argparse.Namespace, out: Output) -> None:
    chosen = {"index": options.index, "depth": options.depth, "limit": options.limit, "everything": options.all}
    with open_context(options) as context:
        if out.json:
            for depth, page in tree_pages(context.pages, **chosen):
                out.value({"depth": depth, **page_to_dict(page)})
            return
        for line in draw_tree(context.pages, out.paint, out.columns, **chosen):
            out.line(line)


@command(
    *PAGE,
    argument("--body", action="store_true", help="print only the text of the page"),
    examples=("quire show agent.db usr-7", "quire show agent.db mem-3 --body > note.txt"),
)
def run_show(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        pages = context.pages
        page = pages.get_page(options.index)
        is_folder = isinstance(page, ContentsPage)
        children = pages.children(page.index, limit=MAX_CHILDREN) if is_folder else []
        detail = "" if is_folder else pages.detail(page.index, quoted=not options.body and not out.json)
        above = pages.ancestors(page.index)
    if out.json:
        path = [parent.index for parent in reversed(above)]
        body = {"first_children": [child.index for child in children]} if is_folder else {"detail": detail}
        out.value({**page_to_dict(page), "path": path, **body})
        return
    if not options.body:
        out.facts(_page_facts(page, above))
        out.line()
    for child in children:
        name = cut(escape_control(child.name), out.columns - width(child.index) - 1)
        out.line(f"{out.paint.cyan(child.index)} {name}")
    if isinstance(page, ContentsPage) and page.child_count > len(children):
        out.line(out.paint.dim(f"… {page.child_count - len(children):,} more"))
    if detail:
        out.line(out.safe(detail))


def _page_facts(page: Page, above: list[Page]) -> list[tuple[str, str]]:
    state = [state_word(page) or "open", *(["pinned"] if page.pinned else [])]
    kind = "contents" if isinstance(page, ContentsPage) else page.form.name.lower()
    facts = [
        ("page", page.index),
        ("name", page.name),
        ("summary", page.description),
        ("kind", kind),
        ("state", ", ".join(state)),
        ("below", " › ".join(parent.index for parent in reversed(above)) or f"(cold, from {page.home})"),
        ("tokens", f"{page.tokens:,}, its summary {page.summary_tokens:,}"),
        ("created", f"{page.created_at:%Y-%m-%d %H:%M:%S} by {page.author}, entry {page.created_seq}"),
        ("changed", f"{page.updated_at:%Y-%m-%d %H:%M:%S}, entry {page.changed_seq}"),
    ]
    is_root = page.parent is None and page.home is None
    return [fact for fact in facts if fact[1] and not (is_root and fact[0] == "below")]


@command(
    *CONTEXT,
    argument(
        "query",
        metavar="QUERY",
        help='words to search for; "quoted words" match as a phrase, prefix* matches words that start with it',
    ),
    argument("--limit", type=int, default=10, metavar="N", help="maximum of hits (default: %(default)s)"),
    argument("--segment", metavar="ID", help="only pages of this segment"),
    argument("--kind", choices=_KINDS, help="only pages of this kind"),
    argument("--role", choices=("user", "assistant", "system", "tool"), help="only messages of this role"),
    argument("--lifecycle", choices=tuple(_LIFECYCLES), help="only pages in this state"),
    examples=("quire find agent.db 'replica port'", "quire find agent.db 退款 --role user --limit 3"),
)
def run_find(options: argparse.Namespace, out: Output) -> None:
    if options.limit < 1:
        raise InvalidValue(f"is {options.limit}; a whole number from 1 is needed.", argument="limit")
    with open_context(options) as context:
        hits = context.find(
            options.query,
            options.limit,
            segment=options.segment,
            kind=options.kind,
            role=options.role,
            lifecycle=_LIFECYCLES.get(options.lifecycle or ""),
        )
        states = [] if out.json else [state_word(context.pages.get_page(hit.index)) for hit in hits]
    if out.json:
        for hit in hits:
            values = pick(hit, "index", "name", "description", "score", "snippet", "path")
            out.value({**values, "lifecycle": STATES[hit.lifecycle], "complete": hit.complete})
        return
    if not hits:
        out.note(f"nothing found for {options.query!r}")
    for hit, state in zip(hits, states, strict=True):
        _print_hit(hit, f"  [{state}]" if state else "", out)


def _print_hit(hit: quire.Hit, state: str, out: Output) -> None:
    paint, score = out.paint, f"score {short_number(hit.score)}"
    name = cut(escape_control(hit.name), max(12, out.columns - width(f"{hit.index}  {score}  {state}")))
    out.line(f"{paint.cyan(hit.index)}  {paint.yellow(score)}  {paint.bold(name)}{paint.dim(state)}")
    if hit.snippet:
        snippet = out.safe(hit.snippet)
        out.line(f"   {_colour_matches(cut_around(snippet, snippet.find('«'), out.columns - 3), out)}")


def _colour_matches(snippet: str, out: Output) -> str:
    """Return a snippet with its matches in colour; the marks stay for output without colours."""
    pieces = snippet.replace("»", "»\0").replace("«", "\0«").split("\0")
    return "".join(out.paint.green(piece) if piece.startswith("«") else piece for piece in pieces)


@command(
    *CONTEXT,
    examples=("quire stats agent.db", "quire stats agent.db --json | jq .stats"),
)
def run_stats(options: argparse.Namespace, out: Output) -> None:
    with open_context(options) as context:
        stats = context.stats()
        segments = context.pages.list_segments()
        messages = len(context.messages(all=True))
        seq, name = context.seq, context.name
    if out.json:
        listed = [
            {
                **pick(segment, "id", "name", "description"),
                "type": segment.type.name,
                "permission": segment.permission.name,
                "max_capacity": segment.max_capacity,
                "root": segment.root_index,
                "tokens": stats.segments[segment.id],
            }
            for segment in segments
        ]
        out.value({"name": name, "seq": seq, "messages": messages, "stats": stats, "segments": listed})
        return
    removed = f"; edits removed {stats.obsolete_items:,} more" if stats.obsolete_items else ""
    out.facts(
        [
            ("context", name),
            ("entries", f"{seq:,}"),
            ("messages", f"{messages:,}"),
            ("items", f"{stats.active_items:,} in the conversation (prompts, exchanges, summaries){removed}"),
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
        out.table(("model", "billed ÷ counted", "reports"), usage, right=(1, 2))
