"""The program that measures one side. It takes commands from standard input, one JSON value a line, and answers each.

The path of its process decides which quire it imports. It uses public names only. A timed program prepares itself and
returns a step: a function that does its operation once and returns the seconds, by name.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any, TextIO

import quire
from bench.compare.evidence import bill, facts, shown, strict
from bench.compare.talks import BUDGET, opened
from bench.traces import RawFloor, Values, conversation, system

Step = Callable[[], Mapping[str, float]]


def seconds(action: Callable[[], object]) -> float:
    """Return the time that a call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def endless(start: int) -> Iterator[Values]:
    """Yield messages without end, from this place of a long conversation."""
    messages = conversation(start + 2_000)
    while True:
        yield from islice(messages, start, None)


def store(where: str, messages: int, budget: int = BUDGET, name: str = "bench") -> quire.Context:
    """Return a context with a conversation of this length, drawn once. It may be there already."""
    ctx = opened(where, name, budget=budget)
    if not any(True for _ in ctx.messages()):
        ctx.system(system())
        ctx.import_messages(conversation(messages))
    ctx.render()
    return ctx


def build(where: str, messages: int, budget: int = BUDGET) -> dict[str, float]:
    """Leave a conversation of this length in a store."""
    store(where, messages, budget).close()
    return {}


def turn(where: str, messages: int, budget: int) -> Step:
    """Add a message and draw the view as the provider gets it. The processor time is steadier."""
    bill(4_000, [0], 100)  # what is loaded at the first fold is there when the clock starts
    ctx, rest = store(where, messages, budget), endless(messages)

    def step() -> Mapping[str, float]:
        message = next(rest)
        start, worked = time.perf_counter(), time.process_time()
        ctx.add(message)
        view = ctx.render()
        view.openai()
        found = {"turn": time.perf_counter() - start, "processor": time.process_time() - worked}
        return found if view.fold is None else {**found, "fold": found["processor"]}

    return step


def append(where: str, messages: int, name: str = "bench") -> Step:
    """Add a message to a conversation, without a view."""
    ctx, rest = store(where, messages, name=name), endless(messages)
    return lambda: {"append": seconds(lambda: ctx.add(next(rest)))}


def fresh(where: str, code: str) -> Step:
    """Run code in a new process, without a store. The start of Python does not count."""
    program = f"import time; start = time.perf_counter(); {code}; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", program]
    return lambda: {"fresh": float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)}


def resume(where: str, messages: int) -> Step:
    """Open a context, then set its prompt and draw its view."""

    def step() -> Mapping[str, float]:
        start = time.perf_counter()
        with opened(where) as ctx:
            middle = time.perf_counter()
            ctx.system(system())
            ctx.render().openai()
            return {"open": middle - start, "resume": time.perf_counter() - start}

    return step


def fork(where: str, messages: int) -> Step:
    """Copy a context inside its store."""
    ctx, places = store(where, messages), count()
    return lambda: {"fork": seconds(lambda: ctx.fork(f"fork-{next(places)}"))}


def contexts(where: str, number: int) -> Step:
    """Open one context of many and draw its view."""
    library, chance = quire.Library(where), Random(3)
    for place in range(number):
        with library.open(f"user-{place}", budget=BUDGET) as ctx:
            ctx.user(f"I am user {place}.")

    def visit() -> None:
        with library.open(f"user-{chance.randrange(number)}") as ctx:
            ctx.render().openai()

    return lambda: {"open": seconds(visit)}


def queries(messages: int) -> Iterator[str]:
    """Yield three words that stand together somewhere in a conversation."""
    texts = [words for message in conversation(messages) if len(words := message["content"].split()) > 8]
    for place in count():
        words = texts[place * 7_919 % len(texts)]
        yield " ".join(words[place % 6 : place % 6 + 3])


def find(where: str, messages: int) -> Step:
    """Search a conversation with an open handle that has searched before, and with one that was just opened."""
    ctx, words = store(where, messages), queries(messages)
    ctx.find(next(words))

    def step() -> Mapping[str, float]:
        with opened(where) as other:
            first = seconds(lambda: other.find(next(words)))
        return {"first": first, "find": seconds(lambda: ctx.find(next(words)))}

    return step


def recall(where: str, messages: int) -> Step:
    """Draw views with recall, each after a new question."""
    ctx, words = store(where, messages), queries(messages)

    def ask(share: float | bool) -> float:
        ctx.user(f"What did you tell me about {next(words)}?")
        took = seconds(lambda: ctx.render(recall=share))
        ctx.assistant("I do not know.")
        return took

    return lambda: {"some": ask(True), "all": ask(1.0)}


def pages(where: str, number: int) -> Step:
    """Append to a folder of many pages, open the store and read one page, hide a page. Nothing is drawn."""
    counter = quire.EstimateCounter()
    ctx = opened(where, counter=counter)
    for start in range(0, number, 10_000):
        part = range(start, min(start + 10_000, number))
        ctx.import_messages({"role": ("user", "assistant")[place % 2], "content": f"Order {place}."} for place in part)
    listed = [page.index for page in ctx.pages.list_pages("usr") if isinstance(page, quire.DetailPage)]
    Random(5).shuffle(listed)

    def read(index: str) -> str:
        with opened(where, counter=counter) as other:
            return other.pages.detail(index)

    return lambda: {
        "append": seconds(lambda: ctx.user("One more order.")),
        "read": seconds(lambda: read(listed[-1])),
        "hide": seconds(lambda: ctx.pages.hide(listed.pop())),
    }


def operations(where: str) -> Step:
    """Do one named operation after the other, so that another process can count the requests of each."""
    ctx, rest = opened(where), endless(0)
    actions: dict[str, Callable[[], object]] = {
        "a message of 100": lambda: ctx.add(next(rest)),
        "a turn of 100": lambda: (ctx.add(next(rest)), ctx.render()),
        "a second context": lambda: opened(where, "second").user("Hello."),
        "open the store and draw": lambda: opened(where).render(),
        "find": lambda: ctx.find("flight"),
        "fork": lambda: ctx.fork("copy"),
    }
    waiting = iter(actions.items())

    def step() -> Mapping[str, float]:
        name, action = next(waiting, ("", dict))
        repeats = 100 if name.endswith("100") else 1
        for _ in range(repeats):
            action()
        return {name: float(repeats)} if name else {}

    return step


def floor(where: str, budget: int) -> Step:
    """Insert a message and commit; with a budget, also take the newest messages that fit. Quire takes no part."""
    raw, rest = RawFloor(where, budget), endless(2_000)
    raw.fill(conversation(2_000))

    def once() -> None:
        raw.append(next(rest))
        _ = raw.render() if budget else ()

    return lambda: {"floor": seconds(once)}


def bare_postgres(where: str) -> Step:
    """Insert a row in one transaction. Quire takes no part."""
    import psycopg

    db = psycopg.connect(where, autocommit=True)
    db.execute("CREATE TABLE IF NOT EXISTS floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)")
    bodies, sql = map(json.dumps, endless(0)), "INSERT INTO floor (body) VALUES (%s)"
    return lambda: {"floor": seconds(lambda: db.execute(sql, (next(bodies),)))}


def disk(kind: str, folder: str, messages: int) -> dict[str, float]:
    """Return the bytes that a conversation takes on the disk after its turns, and after one search."""
    path = Path(tempfile.mkdtemp(dir=folder))
    where, sizes = f"{kind}:{path}/store", []
    for search in (False, True):
        with opened(where) as ctx:
            for message in () if search else conversation(messages):
                ctx.add(message)
                ctx.render()
            _ = ctx.find("flight") if search else ()
        sizes.append(sum(512 * file.stat().st_blocks for file in path.rglob("*")))
    return dict(zip(("on disk", "on disk after a search"), sizes, strict=True))


def size() -> dict[str, float]:
    """Return the size of the source, and of quire and the packages that it needs as pip installs them, no extras."""
    files = [*(root := Path(str(quire.__file__)).resolve().parent).rglob("*")]
    source = [file.read_bytes().count(b"\n") for file in files if file.suffix == ".py"]
    own = sum(file.stat().st_size for file in files if file.is_file() and file.suffix != ".pyc")
    waiting, sizes = tomllib.loads((root.parents[1] / "pyproject.toml").read_text())["project"]["dependencies"], {}
    for needed in waiting:
        package = metadata.distribution(re.split(r"[^\w.-]", needed)[0])
        sizes[package.name] = sum(file.size or 0 for file in package.files or ())
        waiting += [each for each in package.requires or () if ";" not in each]
    counts = {"lines of Python": sum(source), "files of Python": len(source)}
    return {**counts, "installed, quire": own, "installed, what it needs": sum(sizes.values())}


_TIMED = (turn, append, fresh, resume, fork, contexts, find, recall, pages, operations, floor, bare_postgres)
_ONCE = (build, disk, size, bill, facts, strict, shown)
PROGRAMS: Mapping[str, Callable[..., Any]] = {program.__name__: program for program in (*_TIMED, *_ONCE)}


def serve(commands: TextIO, answers: TextIO) -> None:
    """Answer commands until the input ends: `start` a timed program, do `more` steps of it, or do something `once`."""
    step: Step = dict
    for line in commands:
        command: dict[str, Any] = json.loads(line)
        answer: dict[str, Any] = defaultdict(list)
        try:
            if "start" in command:
                step = PROGRAMS[command["start"]](**command["options"])
            elif "once" in command:
                answer |= PROGRAMS[command["once"]](**command["options"])
            else:
                for name, took in (pair for _ in range(command["more"]) for pair in step().items()):
                    answer[name].append(took)
        except Exception as error:  # the other side, and the other measurements, go on
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is not an answer
    print(json.dumps({"quire": str(Path(str(quire.__file__)).resolve())}), file=replies, flush=True)
    serve(sys.stdin, replies)
