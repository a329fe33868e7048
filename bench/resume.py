"""Measure a new process: its first turn, and a resume from an open file to the list for the model.

The resume is compared with a raw floor. The best of several processes counts, for both sides. A resume is so short that
one interruption by another program costs more than the whole resume, so a median would measure the other programs.
"""

import time
from pathlib import Path

import quire
from bench.figures import Figure
from bench.measure import fresh_python
from bench.traces import RawFloor, conversation, system

BUDGET = 8_000
ROUNDS = 15

_OURS = """
import time, quire
ctx = quire.open({warm!r}, "bench", budget={budget})  # what is imported late is there when the clock starts
ctx.system("Be brief.")
ctx.render().openai()
start = time.perf_counter()
ctx = quire.open({file!r}, "bench", budget={budget})
ctx.system(open({prompt!r}, newline="").read())
found = ctx.render().openai()
print(time.perf_counter() - start, len(found))
"""

_FIRST = """
import quire, time
ctx = quire.open({file!r}, "bench", budget={budget})
ctx.system(open({prompt!r}, newline="").read())
ctx.user(open({question!r}, newline="").read())
ctx.render().openai()
ctx.assistant(open({answer!r}, newline="").read())
print(time.time())
"""

_FLOOR = """
import json, sqlite3, time
start = time.perf_counter()
db = sqlite3.connect({file!r}, isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("PRAGMA synchronous = NORMAL")
prompt = dict(role="system", content=open({prompt!r}, newline="").read())
used, found = {prompt_tokens}, []
for tokens, body in db.execute("SELECT tokens, body FROM message ORDER BY id DESC"):
    if used + tokens > {budget}:
        break
    used += tokens
    found.append(json.loads(body))
found.append(prompt)
found.reverse()
print(time.perf_counter() - start, len(found))
"""


def run(folder: Path, messages: int) -> list[Figure]:
    """Measure a conversation of this many messages up to an 8k list; imports are done before the clock starts."""
    prompt, ours, raw = folder / "prompt.txt", folder / "resume.db", folder / "resume-floor.db"
    prompt.write_text(system(), newline="")
    _build(ours, raw, messages)
    values = {
        "warm": str(folder / "resume-warm.db"),
        "budget": BUDGET,
        "prompt": str(prompt),
        "prompt_tokens": 4 + quire.VocabularyCounter().count(system()),
    }
    pairs = [
        (_seconds(_OURS.format(file=str(ours), **values)), _seconds(_FLOOR.format(file=str(raw), **values)))
        for _ in range(ROUNDS)
    ]
    mine, floor = (min(column) for column in zip(*pairs, strict=True))
    note = f"best of {ROUNDS}; {mine * 1e3:.2f} ms against {floor * 1e3:.2f} ms"
    return [
        Figure(f"resume {messages:,} messages at 8k in a fresh process, × raw floor", mine / floor, "×", 3, note),
        _first_turn(folder, prompt),
    ]


def _first_turn(folder: Path, prompt: Path) -> Figure:
    """Measure from the start of a process to the end of its first turn, with a system prompt, a question and an answer.

    The first processes write the bytecode and the table of the vocabulary.
    """
    texts = {}
    for role in ("user", "assistant"):
        texts[role] = folder / f"{role}.txt"
        texts[role].write_text(next(m["content"] for m in conversation(50) if m["role"] == role and m["content"]))
    seconds = []
    for number in range(ROUNDS):
        code = _FIRST.format(
            file=str(folder / f"first-{number}.db"),
            budget=BUDGET,
            prompt=str(prompt),
            question=str(texts["user"]),
            answer=str(texts["assistant"]),
        )
        start = time.time()
        seconds.append(float(fresh_python(code)) - start)
    note = f"best of {ROUNDS}, with cached bytecode; {seconds[0] * 1e3:.0f} ms in the first process"
    return Figure("from the start of a process to the end of its first turn", min(seconds) * 1e3, "ms", 180, note)


def _build(ours: Path, raw: Path, messages: int) -> None:
    history = conversation(messages)
    ctx = quire.open(ours, "bench", budget=BUDGET)
    ctx.system(system())
    ctx.import_messages(history)
    ctx.render()
    ctx.close()
    floor = RawFloor(str(raw), BUDGET)
    floor.fill(history)
    floor.close()


def _seconds(code: str) -> float:
    return float(fresh_python(code).split()[0])
