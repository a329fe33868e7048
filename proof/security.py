"""Attack the boundaries: permissions, forged structure, hostile names, damaged and hostile input, dependencies."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement

import quire
from proof import canaries, wire
from proof.concurrency import place_of
from proof.results import ROOT
from proof.topic import Check, Control, Options
from quire.agent.gate import Gate
from quire.core.codec import decode_entry, decode_message, decode_page
from quire.core.records import MESSAGES
from quire.storage.contract import PAGE, TEXT
from quire.view.escaping import Escaping
from tests.surfaces.http_service import serving
from tests.surfaces.test_agent_rights import SHARES, case_for, cells_of, violations
from tests.surfaces.test_described_requests import WAYS, ask_for, operations_of
from tests.view_laws.test_forgery import check_round

TITLE = "Security"
ABOUT = """
The permission matrix tries every operation of an agent on pages of every segment type, permission, state and pin. A
table that was written from the contract has the expected results. Each operation is called in Python and as a tool. The
tools are also called through a server over HTTP, the process `quire mcp`, and the MCP server of a gateway. A refused
attempt must change nothing. The gateway has only `find` and `read_page`.

Forged structure: text with look-alikes of the lines that quire writes, in every place where text can enter. An oracle
with its own rules must find no line that quire did not write.

Hostile names: names with paths, control characters, direction marks, look-alikes and secrets of other formats, in every
place that takes a name, on every backend. They come back exactly, or are refused with a typed error; nothing is written
outside the store. Decoders: damaged and random bytes for every kind of stored record and for imported documents; only
typed errors are allowed.

A server as a process: clients that send half of their headers, and many event streams. The server closes slow clients,
refuses streams above its limit and answers other clients. Every open stream receives each change. Requests made from
the OpenAPI description (schemathesis), valid and invalid: no answer is an error of the server, and every answer has the
described form. Script injection: hostile texts in the inspector, in Chromium (long form; `tests/server/inspector`).

Secrets: a text that `redact` removes, the token of a server, the key of a client of the gateway, and passwords in
addresses. None is in a log, an error, an export, a backup, a file, a span, a metric or an answer. Each dependency has a
lower bound and, except apsw, an upper bound; the installed version is inside. `pip-audit` reads advisories if it is
installed and a source of them can be reached.
"""
FORGED = (100_000, 10_000_000)
FORGED_LINES = (3, 300, 30, 300)
"""The most lines of a text, for one context after the other: few lines for many small texts, many lines for speed."""
WIRES = ("HTTP", "MCP", "gateway")
CLIENTS = ((60, 120), (400, 300))
"""Slow clients and event streams, in the short and in the long form."""
LISTENERS = 100
"""The event streams that a server accepts."""
NO_UPPER_BOUND = {"apsw"}
"""Its version is that of SQLite, which stays compatible."""
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
    share = None if options.seconds is None else options.seconds / 8
    yield matrix(options, share)
    for how in WIRES:
        count, findings = wire.matrix(options, how, share)
        yield Check(name="permission matrix", backend=how, count=count, unit="cells", findings=findings)
    yield forged(options, None if share is None else 2 * share)
    for backend in options.chosen("memory", "sqlite", "file", "postgres", "s3"):
        yield hostile_names(backend, options)
    yield decoders(options, share)
    yield from clients(options)
    yield described(options)
    if options.long:
        yield injection()
    outputs, findings = canaries.search(options.folder / "canaries")
    yield Check(name="secrets", count=outputs, unit="outputs", findings=findings)
    yield dependencies(importlib.metadata.requires("quire") or [])


def clients(options: Options, **settings: Any) -> Iterator[Check]:
    """Open slow connections and event streams at a server."""
    slow, streams = CLIENTS[options.long]
    settings = {"header_timeout": 1.0, "waiting": slow, **settings}
    with wire.server_process(options.folder / "server.db", **settings) as address:
        findings = wire.slow_clients(address, slow, 2.0)
        yield Check(name="slow clients", backend="HTTP", count=slow, unit="connections", findings=findings)
        findings = wire.listeners(address, streams, LISTENERS)
        yield Check(name="event streams", backend="HTTP", count=streams, unit="streams", findings=findings)


def described(options: Options, path: str = "") -> Check:
    """Make requests from the OpenAPI description, of all routes or of one path."""
    examples = 100 if options.long else 2
    findings: list[str] = []
    with serving(budget=2_000) as service:
        service.book("book")
        operations = [one for one in operations_of(service) if path in ("", one.path)]
        chosen = operations if options.long or path else options.random("described").sample(operations, 6)
        for operation in chosen:
            for way in WAYS:
                try:
                    ask_for(operation, way, examples)
                except Exception as error:
                    name = f"{operation.method.upper()} {operation.path}"
                    findings.append(f"{name} ({way}): {' '.join(str(error).split())}"[:300])
    facts: dict[str, int | float | str] = {"routes": len(chosen)}
    count = len(chosen) * len(WAYS) * examples
    return Check(name="described requests", count=count, unit="requests", facts=facts, findings=findings[:5])


def injection() -> Check:
    """Run the tests of the inspector with hostile texts, in a browser."""
    tests = "tests/server/inspector"
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-m", "servers", "-k", "hostile", tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", done.stdout)
    findings = [] if not done.returncode and passed else [done.stdout.strip()[-300:] or done.stderr.strip()[-300:]]
    count = int(passed[1]) if passed else 0
    return Check(name="script injection", backend="Chromium", count=count, unit="tests", findings=findings)


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
    lines = sum(count for count, _, _ in results)
    facts: dict[str, int | float | str] = {"views": sum(views for _, views, _ in results), "first seed": str(first)}
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
    stored = storage.load("book")
    assert stored is not None
    page = next(storage.scan(stored.id, PAGE))
    entry = next(storage.entries(stored.id))
    message = next(storage.scan(stored.id, TEXT, MESSAGES))
    found += [
        ("page", lambda data: decode_page(replace(page, value=data)), page.value),
        ("journal", lambda data: decode_entry(replace(entry, entry=data)), entry.entry),
        ("message", lambda data: decode_message(replace(message, value=data)), message.value),
    ]
    return found


def dependencies(needed: Sequence[str]) -> Check:
    """Check the bounds of the dependencies, and the installed versions. Read advisories if that is possible."""
    findings: list[str] = []
    for line in needed:
        requirement = Requirement(line)
        signs = {one.operator for one in requirement.specifier}
        if requirement.name == "quire" or requirement.name in NO_UPPER_BOUND:
            continue
        if not (signs & {">=", ">", "==", "~="} and signs & {"<", "<=", "==", "~="}):
            findings.append(f"{line}: not both bounds")
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            findings += [] if "extra" in line else [f"{line}: not installed"]
            continue
        if version not in requirement.specifier:
            findings.append(f"{line}: {version} is installed")
    read, known = _advisories()
    facts: dict[str, int | float | str] = {"advisories": read}
    return Check(
        name="dependencies", count=len(needed), unit="requirements", facts=facts, findings=[*findings, *known][:5]
    )


def _advisories() -> tuple[str, list[str]]:
    """Return what was read, and the advisories for installed packages."""
    if find_spec("pip_audit") is None:
        return "not read: pip-audit is not installed", []
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--skip-editable"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages = [one for one in json.loads(done.stdout)["dependencies"] if "skip_reason" not in one]
    except (ValueError, KeyError):
        packages = []
    if not packages:
        return "not read: no source can be reached", []
    found = [f"{one['name']} {one['version']}: {vuln['id']}" for one in packages for vuln in one["vulns"]]
    return f"of {len(packages)} packages", found


def control(options: Options) -> Iterator[Control]:
    """Open the gate, and switch off the escaping."""

    def opened(self: Gate, reader: Any, operation: str, index: object, **_: object) -> Any:
        return reader.require_page(index)

    with patch.object(Gate, "page", opened):
        case = case_for("CUSTOM")
        cells = [cell for n, cell in enumerate(cells_of(case, "CUSTOM")) if n % 40 == 0]
        found = list(violations(case, cells, keep=False))
    yield Control(name="gate opened", found=bool(found), evidence=f"{len(found)} cells, such as: {found[:1]}"[:200])
    with patch.object(Escaping, "escape_line", lambda self, value: value):
        check = forged(msgspec.structs.replace(options, long=False), 20)
    evidence = " ".join(" ".join(check.findings[:1]).split())[:200]
    yield Control(name="escaping of lines removed", found=bool(check.findings), evidence=json.dumps(evidence))
    for how in WIRES:
        count, findings = wire.matrix(options_of(options, f"open-{how}"), how, 6, is_open=True)
        evidence = f"{count} cells, such as: {findings[:1]}"[:200]
        yield Control(name="all rights for agents", backend=how, found=bool(findings), evidence=evidence)
    broken = {"header_timeout": 600.0, "listeners": 10_000}
    for check in clients(options_of(options, "no-limits"), **broken):
        found = [f"{check.count} {check.unit}", *check.findings]
        yield Control(name=f"no limits: {check.name}", found=bool(check.findings), evidence="; ".join(found)[:200])
    with patch.object(quire.Library, "list", side_effect=RuntimeError("broken")):
        check = described(options, "/api/contexts")
    evidence = " ".join(check.findings[:1])[:200]
    yield Control(name="a route that fails", found=bool(check.findings), evidence=evidence)
    _, leaks = canaries.search(options.folder / "leaks", redact=str)
    yield Control(name="redaction removed", found=bool(leaks), evidence="; ".join(leaks)[:200])
    check = dependencies(["msgspec", "msgspec<0.1,>=0.0.1"])
    yield Control(name="a wrong dependency", found=len(check.findings) == 2, evidence="; ".join(check.findings))


def options_of(options: Options, folder: str) -> Options:
    """Return the short form of a run, in a folder of its own."""
    path = options.folder / folder
    path.mkdir()
    return msgspec.structs.replace(options, long=False, folder=path)
