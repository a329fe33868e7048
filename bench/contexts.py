"""Many contexts: 100,000 with twenty messages on PostgreSQL and SQLite, and LangGraph's checkpointer on PostgreSQL.

Each backend first stores all conversations. Then eight processes open random contexts and add a user's message and an
answer, while another process opens random contexts and renders a view with 2,000 tokens. The server runs with fsync on.
"""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import quire
from bench.figures import Figure
from bench.measure import varied_text

_MESSAGES = 20
_BUDGET = 2_000
_WORKERS = 8
_WORKER = """
import sys
from bench.contexts import work
work(*sys.argv[1:])
"""


class Backend(NamedTuple):
    """Three operations of a backend: store a conversation, continue one, show one."""

    store: Callable[[int, list[dict[str, str]]], object]
    continue_talk: Callable[[int], object]
    show: Callable[[int], object]


def run(folder: Path, size: int) -> list[Figure]:
    """Return all figures of many contexts; those of PostgreSQL only if a server can be started."""
    from tests.servers.postgres import Server, StartFailed

    count = 100_000 if size >= 1_000_000 else 1_000
    figures = _measure("quire-sqlite", str(folder / "many.db"), count, lambda: _file_size(folder))
    try:
        (folder / "pg").mkdir()
        server = Server(folder / "pg", durable=True)
        server.start()
    except StartFailed as error:
        print(f"PostgreSQL is not measured: {error}", file=sys.stderr)
        return figures
    try:
        figures += _on_server(server, count)
    finally:
        server.stop()
    return figures


def _on_server(server: Any, count: int) -> list[Figure]:
    figures = _measure("quire-postgres", server.url(), count, lambda: _server_size(server.url()))
    if find_spec("langgraph") is None or find_spec("langgraph.checkpoint.postgres") is None:
        return figures
    before = _server_size(server.url())
    langgraph_tables(server.url())
    return figures + _measure("langgraph-postgres", server.url(), count, lambda: _server_size(server.url()) - before)


def _measure(kind: str, where: str, count: int, size: Callable[[], int]) -> list[Figure]:
    start = time.perf_counter()
    _wait_for(_start("store", kind, where, count))
    seconds = time.perf_counter() - start
    rate, stored = count / seconds, size()
    writers = _start("continue_talk", kind, where, count)
    shown = _start("show", kind, where, count, workers=1)
    took = [float(line) for line in _wait_for(shown)[0].split()]
    written = sum(int(line) for line in _wait_for(writers, stop=True))
    took.sort()
    return [
        Figure(f"{kind}, {count:,} contexts: milliseconds to store one of {_MESSAGES} messages", 1e3 / rate, "ms"),
        Figure(f"{kind}, {count:,} contexts: kilobytes each", stored / count / 1e3, "kB"),
        Figure(
            f"{kind}, {count:,} contexts: open and render while {_WORKERS} write, 99th percentile",
            took[int(len(took) * 0.99)] * 1e3,
            "ms",
            None,
            f"half within {took[len(took) // 2] * 1e3:.1f} ms; {written:,} turns written beside {len(took)} views",
        ),
    ]


def _start(what: str, kind: str, where: str, count: int, workers: int = _WORKERS) -> list["subprocess.Popen[str]"]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, what, kind, where, str(count), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(workers)
    ]


def _wait_for(workers: Sequence["subprocess.Popen[str]"], *, stop: bool = False) -> list[str]:
    """Return what the workers print when they end. With `stop`, end them by closing their input."""
    if stop:
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.close()
            worker.stdin = None
    answers = [worker.communicate()[0] for worker in workers]
    if any(worker.returncode for worker in workers):
        raise RuntimeError("A worker failed.")
    return answers


def work(what: str, kind: str, where: str, count: str, number: str) -> None:
    """Run one process: store its share, continue conversations until its input ends, or show 1,000 contexts."""
    backend = (langgraph_backend if kind == "langgraph-postgres" else quire_backend)(where)
    chance = random.Random(int(number))
    if what == "store":
        for context in range(int(number), int(count), _WORKERS):
            backend.store(context, list(messages(context)))
    elif what == "continue_talk":
        print(_repeat_until_input_ends(lambda: backend.continue_talk(chance.randrange(int(count)))))
    else:
        time.sleep(2)
        print("\n".join(str(_seconds(backend.show, chance.randrange(int(count)))) for _ in range(1_000)))


def _repeat_until_input_ends(turn: Callable[[], object]) -> int:
    """Return the number of turns until standard input ends."""
    from select import select

    done = 0
    while not select([sys.stdin], [], [], 0)[0]:
        turn()
        done += 1
    return done


def _seconds(call: Callable[[int], object], context: int) -> float:
    start = time.perf_counter()
    call(context)
    return time.perf_counter() - start


def messages(context: int) -> Iterator[dict[str, str]]:
    """Yield a conversation of twenty messages of varied text."""
    chance = random.Random(context)
    for number in range(_MESSAGES):
        yield {"role": "assistant" if number % 2 else "user", "content": varied_text(chance, 200)}


def quire_backend(where: str) -> Backend:
    """Return the operations on a library of quire."""
    library = quire.Library(where)

    def store(context: int, talk: list[dict[str, str]]) -> None:
        library.open(f"c{context}", budget=_BUDGET).add(talk)

    def continue_talk(context: int) -> None:
        while True:
            ctx = library.open(f"c{context}", budget=_BUDGET)
            try:
                ctx.add([{"role": "user", "content": "And then?"}, {"role": "assistant", "content": "That was all."}])
            except (quire.Conflict, quire.Busy):
                continue
            return

    def show(context: int) -> None:
        assert library.open(f"c{context}", budget=_BUDGET).render().tokens <= _BUDGET

    return Backend(store, continue_talk, show)


def langgraph_tables(where: str) -> None:
    """Create the tables of LangGraph's checkpointer."""
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(where) as saver:
        saver.setup()


def langgraph_backend(where: str) -> Backend:
    """Return the operations on LangGraph's checkpointer. A checkpoint has the list of messages; showing trims it."""
    import psycopg
    from langchain_core.messages import convert_to_messages, trim_messages
    from langchain_core.messages.utils import count_tokens_approximately
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    db: Any = psycopg.connect(where, autocommit=True, prepare_threshold=0, row_factory=dict_row)
    saver = PostgresSaver(db)

    def put(context: int, talk: Sequence[Any], parent: str | None) -> None:
        config: Any = {"configurable": {"thread_id": f"c{context}", "checkpoint_ns": "", "checkpoint_id": parent}}
        checkpoint = empty_checkpoint()
        version = f"{len(talk):032}.0"
        checkpoint["channel_values"] = {"messages": list(talk)}
        checkpoint["channel_versions"] = {"messages": version}
        saver.put(config, checkpoint, {"source": "loop", "step": len(talk), "parents": {}}, {"messages": version})

    def last(context: int) -> Any:
        found = saver.get_tuple({"configurable": {"thread_id": f"c{context}", "checkpoint_ns": ""}})
        assert found is not None
        return found

    def continue_talk(context: int) -> None:
        found = last(context)
        talk = found.checkpoint["channel_values"]["messages"]
        more = convert_to_messages([("user", "And then?"), ("assistant", "That was all.")])
        put(context, [*talk, *more], found.checkpoint["id"])

    def show(context: int) -> None:
        talk = last(context).checkpoint["channel_values"]["messages"]
        assert trim_messages(talk, max_tokens=_BUDGET, token_counter=count_tokens_approximately)

    def store(context: int, talk: list[dict[str, str]]) -> None:
        put(context, convert_to_messages(talk), None)

    return Backend(store, continue_talk, show)


def _file_size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("many.db*"))


def _server_size(url: str) -> int:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CHECKPOINT")
        row = db.execute("SELECT pg_database_size(current_database())").fetchone()
    return int(row[0]) if row else 0
