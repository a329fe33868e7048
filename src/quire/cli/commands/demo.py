"""The command demo: an agent's conversation, replayed at a small budget into a new SQLite file.

The conversation is `demo.json`. Every number that the demo prints is measured while it runs.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from io import StringIO
from pathlib import Path
from shutil import which
from tempfile import mkdtemp
from typing import NamedTuple

import msgspec

import quire
from quire import Context, DetailPage, Hit, Message, Price, QuireError, View
from quire.cli.command import argument, command
from quire.cli.commands.serve import can_serve, serve_inspector
from quire.cli.commands.view import draw_map
from quire.cli.replay.pricing import CallTotals
from quire.cli.replay.recordings import Reach, extract_facts, measure_reach
from quire.cli.replay.report import CALL_HEAD, print_call
from quire.cli.replay.simulation import WindowRequest, play_calls, refusing_providers
from quire.cli.terminal import Narration, Output, Paint, Values, cut, pad, width
from quire.cli.tree import draw_tree
from quire.windows.apps import Todo

BUDGET = 2_000
NAME = "coding-agent"
_MAX_CHILDREN = 6
_LARGE = 10
"""At this many times the budget, the whole conversation fits."""
_KEY = re.compile('key="[^"]*"')
"""The random key of a window in a view."""
_TASKS = ("Ask the gateway how long it keeps keys", "写回归测试", "Tell support about the refunds")


class Question(msgspec.Struct, frozen=True):
    """A late question about an early message.

    The user message that contains `at` asks it. `find` is the search for the answer, `answer` a part of it.
    """

    at: str
    find: str
    answer: str


class DemoConversation(msgspec.Struct, frozen=True):
    """The conversation of the demo."""

    title: str
    system: str
    questions: tuple[Question, ...]
    messages: tuple[Message, ...]

    @property
    def prompt(self) -> Message:
        return Message(role="system", content=self.system)

    def questions_in(self, message: Message | None) -> list[Question]:
        """Return the questions that a message asks."""
        if message is None or message.role != "user":
            return []
        return [question for question in self.questions if question.at in message.text]


def load_conversation() -> DemoConversation:
    """Return the conversation of the demo."""
    data = files("quire.cli").joinpath("demo.json").read_bytes()
    return msgspec.json.decode(data, type=DemoConversation)


class Side(CallTotals):
    """One side of the comparison: its totals, and the questions that it can answer. With a context, it can search."""

    def __init__(self, context: Context | None = None) -> None:
        super().__init__()
        self._context = context
        self.answers = Reach()

    def call(self, messages: Sequence[Message], tokens: int, shared: int, questions: Sequence[Question]) -> None:
        """Count one model call and the answers to the questions before it."""
        self.count(tokens, shared, refusing_providers(messages))
        self.answers += self.reach([(question.find, question.answer) for question in questions], messages)

    def reach(self, sought: Sequence[tuple[str, str]], messages: Sequence[Message]) -> Reach:
        """Count the (query, answer) pairs with the answer in the messages or found by a search."""
        return measure_reach(sought, messages, self._context)


class DemoResult(NamedTuple):
    """The last view and both sides. Their `facts` are from the first `early` messages and are measured at the end."""

    view: View
    ours: Side
    theirs: Side
    early: int


def play_demo(paint: Paint, *, fast: bool = False, quiet: bool = False) -> tuple[Path, DemoResult]:
    """Run the demo, and return the file that it wrote and its measurements."""
    narration = Narration(paint, fast=fast, file=StringIO() if quiet else None)
    path = Path(mkdtemp(prefix="quire-demo-")) / "agent.db"
    talk = load_conversation()
    with quire.open(path, NAME, budget=BUDGET) as context:
        narration.section(f"{talk.title}: {len(talk.messages)} messages and a prompt in {BUDGET:,} tokens")
        result = replay(context, talk, narration)

        narration.section("The last request, and the pages that it does not show")
        narration.line(*draw_map(result.view, paint, narration.columns))
        bill = result.view.bill()
        cost = f"{bill.read:,} from the cache, {bill.plain:,} plain, costs {bill.cost:,.0f}"
        narration.paragraph(f"bill(): {cost}. {bill.why}")
        narration.line(*draw_tree(context.pages, paint, narration.columns, closed=1, limit=_MAX_CHILDREN))

        narration.section("Nothing is lost")
        now = context.render(preview=True).tokens
        narration.paragraph(f"with the last reply, the view has {now:,} tokens; it had {result.view.tokens:,}")
        _open_folded_page(context, talk.questions[2], narration)
        _undo_fold(context, narration)

        narration.section("The same calls with a sliding window: the newest messages that fit")
        narration.line(*comparison_table(result, paint))

        narration.section("A live window: the model's todo list")
        _show_window(context, narration)

        narration.section("Other features")
        _show_features(context, narration)
    with quire.open(path, NAME, budget=BUDGET) as context:
        narration.section("Reopened from disk")
        count, problems = sum(1 for _ in context.pages.list_pages()), context.check()
        narration.line(f"{count} pages, {context.seq} journal entries, check(): {len(problems)} problems")
    narration.title("Try next")
    print_next_commands(path, narration)
    return path, result


def replay(context: Context, talk: DemoConversation, narration: Narration) -> DemoResult:
    """Play the conversation into a context, with one view for each message of the assistant."""
    ours, theirs = Side(context), Side()
    view, window = context.render(preview=True), WindowRequest((), 0, 0)
    narration.line(narration.paint.dim(cut(CALL_HEAD, narration.columns)))
    for call in play_calls(context, talk.prompt, talk.messages):
        questions = talk.questions_in(call.before)
        view, window = call.view, call.window
        ours.call(view.messages, view.tokens, view.shared_prefix, questions)
        theirs.call(window.messages, window.tokens, window.shared, questions)
        print_call(narration, call)
    early = len(talk.messages) // 3
    facts = [(fact, fact) for fact in extract_facts(talk.messages[:early])]
    ours.facts, theirs.facts = ours.reach(facts, view.messages), theirs.reach(facts, window.messages)
    return DemoResult(view, ours, theirs, early)


def _open_folded_page(context: Context, question: Question, narration: Narration) -> None:
    """Find an early fact, and open the folded page that holds it."""
    paint = narration.paint
    hit = next(hit for hit in context.find(question.find) if _is_folded(context, hit))
    answer = next(line for line in context.pages.detail(hit.index).splitlines() if question.answer in line)
    start = f"find({question.find!r}) → "
    room = narration.columns - width(start) - len(hit.index) - 2
    narration.line(f"{start}{paint.cyan(hit.index)}: {paint.dim(cut(answer, room))}")
    why = context.why(hit.index)
    narration.line(f"why({hit.index!r}) → {why.rule}; {why.tokens:,} tokens: {paint.green(why.call)}")
    before = context.render(preview=True)
    context.pages.expand(hit.index)
    opened = _layout(context)
    shown = next(page for page in opened.pages if page.index == hit.index)
    sizes = f"{before.tokens:,} → {opened.tokens:,} tokens, at a larger budget"
    narration.line(f"expand({hit.index!r}) → {shown.granularity}: {sizes}")
    context.undo(context.seq)
    narration.line(f"undo({context.seq - 1}) → closed again, {_compare_view(context, before)}")


def _is_folded(context: Context, hit: Hit) -> bool:
    is_leaf = isinstance(context.pages.get_page(hit.index), DetailPage)
    return is_leaf and context.why(hit.index).shown == "no"


def _undo_fold(context: Context, narration: Narration) -> None:
    """Undo the last fold, and redo it."""
    before = context.render(preview=True)
    fold = list(context.history(operation="fold"))[-1]
    undone = context.undo(fold)
    whole = _layout(context)
    narration.line(
        f"undo({fold.seq}), the last fold → its {len(fold.pages)} pages are open again:"
        f" {before.tokens:,} → {whole.tokens:,} tokens"
    )
    context.undo(undone)
    narration.line(f"undo({undone}), redo → {_compare_view(context, before)}")


def _layout(context: Context) -> View:
    """Return the pages that are open now as one view, even if the budget is too small for it."""
    budget, context.budget = context.budget, _LARGE * context.budget
    try:
        return context.render(preview=True)
    finally:
        context.budget = budget


def _compare_view(context: Context, before: View) -> str:
    is_same = context.render(preview=True).openai() == before.openai()
    return "the same view, byte for byte" if is_same else "another view"


def comparison_table(result: DemoResult, paint: Paint) -> Iterator[str]:
    """Yield the lines of the table that compares quire with a sliding window."""
    ours, theirs = result.ours, result.theirs
    rows = [
        ("", "quire", "sliding window"),
        ("model calls", f"{ours.calls:,}", f"{theirs.calls:,}"),
        ("input tokens", f"{ours.tokens:,}", f"{theirs.tokens:,}"),
        ("  a call", f"{ours.mean:,}", f"{theirs.mean:,}"),
        ("  from the prompt cache", f"{100 * ours.share:.0f} %", f"{100 * theirs.share:.0f} %"),
        (f"cost (cached tokens at {Price().read:g})", f"{ours.cost:,.0f}", f"{theirs.cost:,.0f}"),
        ("illegal requests", f"{ours.openai_refusals}", f"{theirs.openai_refusals}"),
        *_reach_rows("late questions: answer in view", ours.answers, theirs.answers),
        *_reach_rows(f"ids and numbers of messages 1 to {result.early}: in view", ours.facts, theirs.facts),
    ]
    first = max(width(row[0]) for row in rows)
    others = max(width(cell) for row in rows for cell in row[1:])
    for number, (name, *cells) in enumerate(rows):
        line = "  ".join([pad(name, first), *(pad(cell, others, right=True) for cell in cells)])
        yield line if number else paint.dim(line)


def _reach_rows(title: str, ours: Reach, theirs: Reach) -> Iterator[tuple[str, str, str]]:
    yield title, *(f"{reach.shown} of {reach.total}" for reach in (ours, theirs))  # type: ignore[misc]
    yield "  or found by find()", *(f"{reach.shown + reach.found} of {reach.total}" for reach in (ours, theirs))  # type: ignore[misc]


def _show_window(context: Context, narration: Narration) -> None:
    """Open a todo list, change it, and show it in the view with its effect on the cache."""
    windows = context.windows
    windows.register(Todo)
    todo = windows.open("todo").id
    for text in _TASKS:
        windows.act(todo, "add", text=text)
    before = context.render()
    windows.act(todo, "done", index=2)
    view = context.render()
    for line in _KEY.sub('key="…"', view.tail[0].messages[0].text).splitlines():
        narration.line(narration.paint.dim(cut(line, narration.columns)))
    before_tail = before.tokens - sum(part.tokens for part in before.tail)
    narration.paragraph(
        f"after {1 + len(_TASKS)} actions the view has it once, at the end; before it"
        f" {view.shared_prefix:,} of {before_tail:,} tokens stay cached"
    )
    windows.close(todo, "Keys last 24 h; regression test written.")
    closed = context.render(preview=True)
    summary = context.find("regression test written")[0].index
    narration.line(
        f"close({todo!r}) → {len(closed.tail)} windows in the view; find() finds its summary:"
        f" {narration.paint.cyan(summary)}"
    )


def _show_features(context: Context, narration: Narration) -> None:
    """Show a refusal, a temporary block, an archived note that is found, and a fork."""
    paint, pages = narration.paint, context.pages
    try:
        pages.hide("sys-1")
    except QuireError as error:
        narration.line(f"{paint.red(error.code)}: {cut(str(error), narration.columns - len(error.code) - 2)}")
    with context.temporary():
        context.user("Only for this step: answer in French.")
        inside = len(context.messages())
    left = len(context.messages())
    narration.line(f"temporary(): {inside} messages in the block, {left} after it: the prompt and the {left - 1}")
    note = pages.create_detail_page("退款名单", "17 笔退款", "17 笔重复扣款，退款见 PAY-4480。", "mem-0")
    pages.archive(note, cold=True)
    hit = context.find("重复扣款 PAY-4480")[0]
    narration.line(f"find() also finds a note in the cold archive: {paint.cyan(hit.index)} {hit.name}")
    branch = context.fork("what-if")
    branch.user("And if the gateway kept keys for 72 h?")
    narration.line(f"fork('what-if'): {len(branch.messages())} messages there, {len(context.messages())} here")


def print_next_commands(path: Path, narration: Narration) -> None:
    """Print commands to try on the file of the demo."""
    command = _quire_command()
    narration.line(f"{command} tree {path} -c {NAME}")
    narration.line(f"{command} view {path} -c {NAME}")
    narration.line(f"{command} serve {path}")


def _quire_command() -> str:
    """Return how to call quire here: by its name if it is on the path, else by the script of this interpreter."""
    if which("quire"):
        return "quire"
    script = which("quire", path=str(Path(sys.executable).parent))
    return _shortest_path(script) if script else f"{_shortest_path(sys.executable)} -m quire"


def _shortest_path(path: str) -> str:
    return min(os.path.relpath(path), path, key=len)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    about = "serve the inspector afterwards, until Ctrl-C (default: on a terminal, if it is installed)"
    group.add_argument("--serve", action="store_true", default=None, help=about)
    group.add_argument("--no-serve", action="store_false", dest="serve", help="do not serve the inspector")


@command(
    argument("--fast", action="store_true", help="no pauses on a terminal"),
    _add_serve,
    examples=("quire demo", "quire demo --fast --no-serve"),
)
def run_demo(options: argparse.Namespace, out: Output) -> None:
    serve = can_serve() and sys.stdout.isatty() and not out.json if options.serve is None else options.serve
    path, result = play_demo(out.paint, fast=options.fast, quiet=out.json)
    if out.json:
        out.value(_result_values(path, result))
    elif serve:
        out.line()
    if serve:
        serve_inspector(str(path), out, context=NAME, browse=sys.stdout.isatty(), port=0)


def _result_values(path: Path, result: DemoResult) -> Values:
    sides = {"quire": result.ours, "sliding_window": result.theirs}
    values: Values = {"store": str(path), "context": NAME, "budget": BUDGET}
    for name, side in sides.items():
        values[name] = {
            "calls": side.calls,
            "tokens": side.tokens,
            "cached": side.shared,
            "cost": side.cost,
            "answers": side.answers._asdict(),
        }
    return values
