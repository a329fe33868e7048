"""Live windows: the cost of fifty updates for the view and its cached prefix, and of drawing a hundred windows."""

import statistics
import sys
import time
from pathlib import Path

import apsw

import quire
from bench.figures import Figure
from quire import Context, View
from quire.windows.apps import Todo

sys.path.append(str(Path(__file__).parent.parent / "examples"))
from parts.file_viewer import Files
from parts.table_viewer import Tables

BUDGET = 8_000
TURNS = 50
WINDOWS = 100
ROUNDS = 30


def run(folder: Path, size: int) -> list[Figure]:
    """Return all figures of windows. They do not depend on the size of the context."""
    return [*updates(), *drawing(folder)]


def updates() -> list[Figure]:
    """Measure a window that changes in each of fifty turns."""
    ctx = quire.open("memory:", budget=BUDGET, key="kestrel")
    ctx.windows.register(Todo)
    ctx.system("You are a careful assistant.")
    ctx.user("Let us begin.")
    ctx.windows.open("todo")
    ctx.windows.act("todo_1", "add", text="buy milk")
    before = ctx.render()
    tokens, broken = [], 0
    for n in range(TURNS):
        ctx.assistant(f"Noted, that was number {n}.")
        ctx.windows.act("todo_1", "done", index=1, done=n % 2 == 0)
        ctx.user(f"And what about number {n + 1}?")
        view = ctx.render()
        tokens.append(_tail(view))
        broken += view.shared_prefix != before.tokens and view.fold is None
        before = view
    return [
        Figure("tokens of a window after 50 updates, × those after the first", tokens[-1] / tokens[0], "×", 1.05),
        Figure("views with a broken prefix, of 50 without a fold", broken, "", 0),
    ]


def drawing(folder: Path) -> list[Figure]:
    """Measure a hundred open windows under an 8k budget, and the time of their own `content()`."""
    ctx = quire.open(folder / "windows.db", budget=BUDGET)
    ctx.system("You are a careful assistant.")
    ctx.user("Look at everything.")
    _register(ctx, folder)
    for n in range(WINDOWS):
        app = ("files", "tables")[n % 2]
        ctx.windows.open(app, {"path": f"notes-{n}.txt"} if app == "files" else {"table": "orders"})
    apps = [live.app for live in ctx.windows._manager._instances.values() if live.app is not None]
    ours, theirs = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for app_object in apps:
            app_object.content()
        theirs.append(time.perf_counter() - start)
        start = time.perf_counter()
        view = ctx.render()
        ours.append(time.perf_counter() - start)
    return [
        _compared("drawing 100 windows (files and tables)", ours, theirs, view),
        *_plain(folder),
    ]


def _plain(folder: Path) -> list[Figure]:
    """Measure the same with windows that return stored content: the cost of drawing alone."""
    ctx = quire.open(folder / "plain.db", budget=BUDGET)
    ctx.windows.register(Todo)
    for n in range(WINDOWS):
        window = ctx.windows.open("todo")
        for entry in range(3):
            ctx.windows.act(window.id, "add", text=f"entry {entry} of list {n}")
    ctx.render()
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        ctx.render()
        seconds.append(time.perf_counter() - start)
    each = min(seconds) / WINDOWS
    return [Figure("drawing one of 100 todo lists with loaded content", each * 1e6, "µs", note="best of 30")]


def _compared(name: str, ours: list[float], theirs: list[float], view: View) -> Figure:
    mine, own = statistics.median(ours), statistics.median(theirs)
    note = f"median; {mine * 1e3:.1f} ms against {own * 1e3:.1f} ms; {view.tokens:,} of {view.budget:,} tokens"
    return Figure(f"{name} under 8k, × their own content()", mine / own, "×", 2, note)


def _register(ctx: Context, folder: Path) -> None:
    root = folder / "files"
    root.mkdir()
    for n in range(WINDOWS):
        text = "".join(f"line {line} of note {n}: the pump moves water through a valve\n" for line in range(20))
        (root / f"notes-{n}.txt").write_text(text)
    database = apsw.Connection(str(folder / "shop.db"))
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL)")
    for n in range(40):
        database.execute("INSERT INTO orders VALUES (?, ?, ?)", (n, f"customer {n % 7}", n * 9.5))
    database.close()
    ctx.windows.register(Files, root)
    ctx.windows.register(Tables, folder / "shop.db")


def _tail(view: View) -> int:
    return sum(part.tokens for part in view.tail)
