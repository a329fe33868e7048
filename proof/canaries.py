"""Canary secrets: they go in everywhere, and must not come out of logs, errors, exports, traces, files and answers."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

import quire
import quire.gateway
import quire.server
from quire import otel
from tests.gateway.scripted_client import Client
from tests.strict_provider import StrictProvider
from tests.test_otel import Telemetry
from tests.test_redaction import BAD, SECRET, fill
from tests.test_redaction import redact as remove
from tests.whole_values import whole_repr

TOKEN = "canary-token-of-a-server-0123456789"
KEY = "sk-ant-api03-canary-key-of-a-client"
PASSWORD = "canary-password"
CANARIES = (SECRET, TOKEN, KEY, PASSWORD)
Outputs = dict[str, str | bytes]


def search(folder: Path, redact: Callable[[str], str] = remove) -> tuple[int, list[str]]:
    """Return the number of outputs that were searched, and those that have a canary."""
    folder.mkdir()
    outputs: Outputs = {}
    with _log() as lines:
        for part in (_context, _errors):
            outputs |= part(folder, redact)
        outputs |= _server(folder) | _gateway(folder) | _addresses()
    outputs["log"] = "\n".join(lines)
    found = []
    for name, output in outputs.items():
        data = output if isinstance(output, bytes) else output.encode("utf-8", "surrogatepass")
        leaks = [one for one in CANARIES for form in (one.encode(), one.encode("utf-16-le")) if form in data]
        found += [f"{name} has {leaks[0]!r}"] if leaks else []
    return len(outputs), found[:5]


@contextmanager
def _log() -> Iterator[list[str]]:
    """Collect every record of the log of this process, at every level."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(logging.Formatter().format(record))  # type: ignore[method-assign]
    ours = logging.getLogger("quire")
    kept = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        ours.removeHandler(handler)
        ours.setLevel(kept)


def _context(folder: Path, redact: Callable[[str], str]) -> Outputs:
    """Bring the secret into a context in every way, with tracing. Return its files, exports and spans."""
    outputs: Outputs = {}
    telemetry = Telemetry()
    telemetry.instrument()
    try:
        for scheme in ("sqlite", "file"):
            store = folder / scheme
            ctx = quire.open(f"{scheme}:{store}", redact=redact, budget=20_000)
            with suppress(AssertionError):  # `fill` looks at a view; the outputs below show the same
                fill(ctx, folder)
            ctx.tools.call("find", {"query": "password"})
            ctx.budget = 1_500
            outputs[f"{scheme}: view"] = repr(ctx.render().openai())
            outputs[f"{scheme}: messages"] = whole_repr(list(ctx.messages(all=True)))
            outputs[f"{scheme}: history"] = whole_repr(list(ctx.history()))
            outputs[f"{scheme}: document"] = ctx.pages.marshal()
            copy = folder / f"{scheme}-copy.db"
            quire.backup(ctx.pages.storage, copy)
            outputs[f"{scheme}: backup"] = copy.read_bytes()
            ctx.close()
            files = store.rglob("*") if store.is_dir() else folder.glob(f"{scheme}*")
            outputs |= {f"{scheme}: {path.name}": path.read_bytes() for path in files if path.is_file()}
        outputs["spans"] = "\n".join(span.to_json() for span in telemetry.spans())
        outputs["metrics"] = "\n".join(metric.to_json() for metric in telemetry.metrics().values())
    finally:
        otel.uninstrument()
    return outputs


def _errors(folder: Path, redact: Callable[[str], str]) -> Outputs:
    """Return the errors of values with the secret."""
    outputs: Outputs = {}
    for name, use in BAD.items():
        ctx = quire.open("memory:", redact=redact)
        ctx.user("Hello")
        try:
            use(ctx)
        except quire.QuireError as error:
            outputs[f"error: {name}"] = f"{error} {error!r} {vars(error)!r}"
    return outputs


def _server(folder: Path) -> Outputs:
    """Return the answers of a server to right, wrong and broken requests."""
    outputs: Outputs = {}
    with quire.server.start(folder / "server.db", port=0, token=TOKEN, create=True, grace=1) as running:
        for words in (f"Bearer {TOKEN}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", f"Bearer\t{TOKEN}"):
            with httpx.Client(base_url=running.address, headers={"Authorization": words}) as client:
                for method, path in (
                    ("GET", "api/contexts"),
                    ("GET", "api/contexts/none"),
                    ("GET", "metrics"),
                    ("GET", "openapi.json"),
                    ("POST", "api/contexts"),
                    ("PUT", "nothing"),
                ):
                    answer = client.request(method, path, content=b"{" if method == "POST" else None)
                    outputs[f"{method} {path} {words[:8]!r}"] = f"{answer.headers!r} {answer.text}"
    return outputs


def _gateway(folder: Path) -> Outputs:
    """Return the store and the answers of a gateway. A client sends its key; one request is refused."""
    outputs: Outputs = {}
    store = folder / "gateway.db"
    with (
        StrictProvider() as provider,
        quire.gateway.start(str(store), anthropic=provider.url, openai=provider.url, port=0) as running,
    ):
        client = Client(running.url, "anthropic", {"x-api-key": KEY, "authorization": f"Bearer {KEY}"})
        client.say("Hello")
        client.items.append({"role": "narrator", "content": "x"})
        client.request()
        running.gateway.sessions.drain()
        assert KEY in str(provider.headers), "the key did not arrive"
        for path in ("/quire/sessions", "/metrics", "/health"):
            outputs[f"gateway {path}"] = httpx.get(running.url + path).text
    outputs |= {f"gateway: {path.name}": path.read_bytes() for path in folder.glob("gateway.db*")}
    return outputs


def _addresses() -> Outputs:
    """Return the errors of addresses with a password."""
    outputs: Outputs = {}
    for address in (
        f"postgresql://user:{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://user:{PASSWORD}@/db?wrong=1",
        f"postgres://user:{PASSWORD}@[bad/db",
        f"mysql://user:{PASSWORD}@127.0.0.1/db",
        f"s3://key:{PASSWORD}@bucket/prefix",
        f"host=127.0.0.1 password={PASSWORD}",
    ):
        with suppress(FileExistsError):
            try:
                quire.open_storage(address, create=False)
            except Exception as error:
                outputs[f"address {len(outputs)}"] = f"{error} {error!r} {error.__context__!r}"
    return outputs
