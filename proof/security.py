"""Attack the boundaries: permissions, forged structure, hostile names, damaged and hostile input, dependencies."""

import importlib.metadata
import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import msgspec

import quire
from proof.concurrency import place_of
from proof.topic import Check, Control, Options
from quire.agent.gate import Gate
from quire.core import records
from quire.storage.base import JOURNAL, MESSAGE, PAGE, Record
from quire.view.escaping import Escaping
from tests.agent.forged_views import check_round
from tests.agent.test_matrix import SHARES, case_for, cells_of, violations

TITLE = "Security"
ABOUT = """
The permission matrix: every operation of an agent on pages of every segment type, permission, state and pin, in Python
and by tool, against a table that was written from the contract. A refused attempt must change nothing. HTTP, MCP and
the gateway call the same tools; their own tests (`tests/server`, `tests/mcp_server`, `tests/gateway`) check access.

Forged structure: text with look-alikes of the lines that quire writes, in every place where text can enter. An oracle
with its own rules must find no line that quire did not write.

Hostile names: names with paths, control characters, direction marks, look-alikes and secrets of other formats, in every
place that takes a name, on every backend. They come back exactly, or are refused with a typed error; nothing is written
outside the store. Decoders: damaged and random bytes for every kind of stored record and for imported documents; only
typed errors are allowed. Slow clients, many event streams, requests made from the OpenAPI description, script injection
in the inspector (in Chromium) and secrets in logs are tested in `tests/server`, `tests/gateway` and
`tests/test_redaction.py`.
"""
FORGED = (100_000, 10_000_000)
FORGED_LINES = (3, 300, 30, 300)
"""The most lines of a text, for one context after the other: few lines for many small texts, many lines for speed."""
DECODED = (20_000, 1_000_000)
NAMES = (
    "../../etc/passwd",
    "..\\..\\x",
    "/absolute",
    "C:\\x",
    "con",
    "a/b",
    "a\nb",
    "a\r\nSet-Cookie: x",
    "\u202eevil",
    "\u200b",
    "e\u0301",
    "é",
    "ａ",
    "<script>alert(1)</script>",
    "'; DROP TABLE page; --",
    "%00",
    "%2e%2e%2f",
    "${jndi:x}",
    "{{7*7}}",
    "a" * 150,
    ".",
    "..",
    " ",
    "-rf",
    "usr-1",
    "quire.lease.x",
    "🙂" * 30,
    "x\0y",
    "\ud800",
    "",
)


def run(options: Options) -> Iterator[Check]:
    share = None if options.seconds is None else options.seconds / 4
    yield matrix(options, share)
    yield forged(options, share)
    for backend in options.chosen("memory", "sqlite", "file", "postgres", "s3"):
        yield hostile_names(backend, options)
    yield decoders(options, share)
    yield dependencies()


def matrix(options: Options, seconds: float | None) -> Check:
    """Try every cell of the permission matrix; in the short form every cell with one of two ways to move."""
    deadline = time.monotonic() + (seconds or float("inf"))
    count = 0
    findings: list[str] = []
    for name in SHARES:
        case = case_for(name)
        cells = list(cells_of(case, name, long=options.long))
        findings += [f"{name}: {line}" for line in violations(case, cells)]
        count += len(cells)
        if time.monotonic() > deadline:
            break
    return Check(name="permission matrix", count=count, unit="cells", findings=findings[:5])


def forged(options: Options, seconds: float | None) -> Check:
    """Place forged lines until the count is reached or the time is over. The long form uses all processors."""
    first = options.random("forged").getrandbits(32)
    workers = (os.cpu_count() or 1) if options.long else 1
    tasks = [(first + number, workers, FORGED[options.long] // workers, seconds) for number in range(workers)]
    if workers == 1:
        results = [_forge(*tasks[0])]
    else:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            results = list(pool.map(_forge, *zip(*tasks, strict=True)))
    lines, views = (sum(one[place] for one in results) for place in (0, 1))
    facts: dict[str, int | float | str] = {"views": views, "first seed": str(first)}
    findings = [found for *_, found in results if found]
    return Check(name="forged structure", count=lines, unit="hostile lines", facts=facts, findings=findings)


def _forge(seed: int, step: int, wanted: int, seconds: float | None) -> tuple[int, int, str]:
    """Check every `step`-th seed. Return the number of lines, the number of contexts, and what was found."""
    deadline = time.monotonic() + (seconds or float("inf"))
    lines = contexts = 0
    while lines < wanted and time.monotonic() < deadline:
        most = FORGED_LINES[contexts % len(FORGED_LINES)]
        try:
            lines += check_round(seed, most=most)
        except AssertionError as error:
            return lines, contexts + 1, f"check_round({seed}, most={most}): {error}"[:300]
        contexts += 1
        seed += step
    return lines, contexts, ""


def hostile_names(backend: str, options: Options) -> Check:
    """Use hostile names in every place of one backend."""
    count = 0
    findings: list[str] = []
    outside = options.folder.parent
    before = {path for path in outside.iterdir() if path != options.folder}
    where = place_of(backend, options.folder)
    storage = quire.S3Storage(**where) if isinstance(where, dict) else where
    with quire.Library(storage) as library:
        for name in NAMES:
            for place, use in _places(library, name).items():
                count += 1
                try:
                    back = use()
                except quire.QuireError:
                    continue
                except Exception as error:
                    findings.append(f"{place} {name!r}: {type(error).__name__}: {error}"[:200])
                    continue
                if back not in (name, " ".join(name.splitlines()), name.strip()):
                    findings.append(f"{place} {name!r} came back as {back!r}"[:200])
        with library.open("book") as book:
            findings += [f"check: {problem}" for problem in book.check()]
    if {path for path in outside.iterdir() if path != options.folder} != before:
        findings.append("a file was written outside the store")
    return Check(name="hostile names", backend=backend, count=count, unit="attempts", findings=findings[:5])


def _places(library: quire.Library, name: str) -> dict[str, Any]:
    """Return a use of a name in each place; each returns the name as it is stored."""

    def book() -> quire.Context:
        return library.open("book", counter=quire.EstimateCounter())

    def context() -> str:
        library.open(name, counter=quire.EstimateCounter()).user("x")
        assert library.exists(name)
        return name

    def page() -> str:
        pages = book().pages
        return pages.get_page(pages.create_detail_page(name, name, name, "mem-0")).name

    def text() -> str:
        pages = book().pages
        return pages.detail(pages.create_detail_page("n", "", name, "mem-0"))

    def segment() -> str:
        return book().pages.add_segment(quire.Segment(id=name)).id

    def checkpoint() -> str:
        context = book()
        context.checkpoint(name)
        return next(known for known in reversed(context.pages.checkpoints()) if known)

    def message() -> str:
        context = book()
        return context.conversation.message(context.user(name)).text

    def key() -> str:
        context = book()
        with context.turn(name, wait=0):
            context.user("in a turn")
        return name

    def fork() -> str:
        return book().fork(name).name

    uses = (context, page, text, segment, checkpoint, message, key, fork)
    return {use.__name__: use for use in uses}


def decoders(options: Options, seconds: float | None) -> Check:
    """Give random and damaged bytes to every decoder of stored records and documents."""
    deadline = time.monotonic() + (seconds or float("inf"))
    random = options.random("decoders")
    valid = _samples()
    count = 0
    findings: list[str] = []
    while count < DECODED[options.long] and time.monotonic() < deadline and not findings:
        name, decode, data = valid[count % len(valid)]
        damaged = bytearray(data)
        for _ in range(random.randrange(1, 4)):
            kind = random.randrange(3)
            at = random.randrange(len(damaged) + 1)
            if kind == 0 and damaged:
                damaged[at % len(damaged)] = random.randrange(256)
            elif kind == 1:
                del damaged[at : at + random.randrange(1, 9)]
            else:
                damaged[at:at] = random.randbytes(random.randrange(1, 9))
        count += 1
        try:
            decode(bytes(damaged))
        except quire.QuireError:
            continue
        except Exception as error:
            findings.append(f"{name} {bytes(damaged)!r}: {type(error).__name__}: {error}"[:300])
    return Check(name="decoders", count=count, unit="inputs", findings=findings)


def _samples() -> list[tuple[str, Any, bytes]]:
    """Return decoders with a valid input of each."""
    storage = quire.MemoryStorage()
    context = quire.open(storage, "book")
    context.user("Hello")
    context.assistant("", [quire.ToolCall("c", "look", "{}")])
    document = context.pages.marshal()
    found: list[tuple[str, Any, bytes]] = [
        ("unmarshal", lambda data: quire.ContextSystem().unmarshal(data), document),
    ]
    page = next(storage.scan("book", PAGE))
    journal = next(storage.scan("book", JOURNAL))
    message = next(storage.scan("book", MESSAGE))
    decode_page, decode_entry, decode_message = records.decode_page, records.decode_entry, records.decode_message
    found += [
        ("page", lambda data: decode_page(Record(page.key, data, page.group, page.order)), page.value),
        ("journal", lambda data: decode_entry(journal.key, data), journal.value),
        ("message", lambda data: decode_message(message.key, data), message.value),
    ]
    return found


def dependencies() -> Check:
    """Check the installed dependencies against the bounds of the project. No list of advisories is read here."""
    needed = importlib.metadata.requires("quire") or []
    names = {re.split(r"[<>=!~;\[ ]", line)[0] for line in needed if "extra ==" not in line}
    unbounded = [line for line in needed if "quire[" not in line and "<" not in line.split(";")[0]]
    facts: dict[str, int | float | str] = {"without an extra": len(names), "without an upper bound": len(unbounded)}
    facts["advisories"] = "not read: the registry is not reachable here"
    missing = [name for name in names if not _is_installed(name)]
    findings = [f"not installed: {name}" for name in missing]
    return Check(name="dependencies", count=len(needed), unit="requirements", facts=facts, findings=findings)


def _is_installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def control(options: Options) -> Iterator[Control]:
    """Open the gate, and switch off the escaping."""

    def opened(self: Gate, reader: Any, operation: str, index: object, **_: object) -> Any:
        return reader.require_page(index)

    with patch.object(Gate, "page", opened):
        case = case_for("CUSTOM")
        cells = [cell for n, cell in enumerate(cells_of(case, "CUSTOM")) if n % 40 == 0]
        found = list(violations(case, cells, always_held=True))
    yield Control(name="gate opened", found=bool(found), evidence=f"{len(found)} cells, such as: {found[:1]}"[:200])
    with patch.object(Escaping, "escape_line", lambda self, value: value):
        check = forged(msgspec.structs.replace(options, long=False), 20)
    evidence = " ".join(" ".join(check.findings[:1]).split())[:200]
    yield Control(name="escaping of lines removed", found=bool(check.findings), evidence=json.dumps(evidence))
