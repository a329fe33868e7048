"""The commands gateway, gateway run, demo, sessions and handoff: a gateway, its clients, and what gateways recorded."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import msgspec

import quire
from quire.cli.command import REDACT, STORE, Argument, argument, command, token_count
from quire.cli.terminal import Output, count_of, pick
from quire.errors import NotInstalled

if TYPE_CHECKING:
    from quire.gateway.gateway_server import RunningGateway

_ANTHROPIC = "https://api.anthropic.com"
_OPENAI = "https://api.openai.com"
_LOG_LINES = 5
_PROMPT_WIDTH = 100
_BUDGET = argument(
    "-b",
    "--budget",
    type=token_count,
    default=120_000,
    metavar="TOKENS",
    help="the most tokens of a request (default: 120k)",
)


def _mode(default: str) -> Argument:
    """Return the option for the mode of the gateway."""
    return argument(
        "--mode",
        choices=("observe", "fold"),
        default=default,
        help="observe: forward every byte and record; fold: also shorten requests above the budget"
        " (default: %(default)s)",
    )


@command(
    STORE,
    argument("command", nargs="*", metavar="-- CLIENT", help="the command of the client"),
    argument("--anthropic", metavar="URL", help=f"the upstream for clients of Anthropic (default: {_ANTHROPIC})"),
    argument("--openai", metavar="URL", help=f"the upstream for clients of OpenAI (default: {_OPENAI})"),
    _mode("fold"),
    _BUDGET,
    argument("--mcp", action="store_true", help="give the client's model the tools find and read_page for this run"),
    argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="a variable that gets the gateway's address, for a client that quire does not know",
    ),
    argument("--stub", action="store_true", help="answer with a stub instead of a provider, to try it offline"),
    argument(
        "--log", metavar="FILE", help="the file for messages of the gateway (default: the first ones are printed)"
    ),
    examples=(
        "quire gateway run agent.db -- claude",
        "quire gateway run agent.db --mcp --budget 80k -- codex",
        "quire gateway run agent.db --env OPENAI_BASE_URL -- my-agent --verbose",
        "quire gateway run agent.db --stub -- claude -p Hello",
    ),
    about="It knows claude, codex, opencode and aider, and writes nothing to their configuration. The exit code is that"
    " of the client. Requires the extra gateway.",
)
def run_gateway_run(options: argparse.Namespace, out: Output) -> int:
    from quire.gateway.clients import prepare
    from quire.gateway.supervisor import Supervisor

    def mcp(url: str) -> list[str]:
        return [sys.executable, "-m", "quire", "mcp", options.where, "--gateway", url] if options.mcp else []

    if options.stub and (options.anthropic or options.openai):
        raise quire.InvalidValue(
            "cannot be used with --anthropic or --openai; the stub replaces both.", argument="stub"
        )
    start = "http://127.0.0.1"
    prepare(options.command, start, names=options.env, mcp=mcp(start))  # raises an error before anything starts
    if options.mcp and find_spec("mcp") is None:
        raise NotInstalled("--mcp needs mcp", "mcp", name="mcp")
    program = shutil.which(options.command[0])
    if program is None:
        raise quire.InvalidValue(f"is {options.command[0]!r}, which is not installed.", argument="command")
    settings = pick(options, "mode", "budget")
    with _stub_provider() if options.stub else nullcontext() as stub, _log_file(options.log) as log:
        upstreams = (stub, stub) if stub else (options.anthropic or _ANTHROPIC, options.openai or _OPENAI)
        settings |= {"anthropic": upstreams[0], "openai": upstreams[1], "port": 0}
        with Supervisor(options.where, settings, log) as gateway:
            launch = prepare(options.command, gateway.url, names=options.env, mcp=mcp(gateway.url))
            keys = {name: "stub" for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY") if stub and name not in os.environ}
            return _run_client([program, *launch.command[1:]], launch.variables | keys)


@contextmanager
def _stub_provider() -> Iterator[str]:
    from quire.testing import StubProvider

    with StubProvider() as stub:
        yield stub.url


def _run_client(words: list[str], variables: dict[str, str]) -> int:
    """Run the client in this terminal, and return its exit code. Only the client handles Ctrl-C."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # a client does not inherit a handler
    try:
        client = subprocess.Popen(words, env=os.environ | variables)
        signal.signal(signal.SIGTERM, lambda *_: client.terminate())
        code = client.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return code if code >= 0 else 128 - code


@contextmanager
def _log_file(given: str | None) -> Iterator[Path]:
    """Yield the file for messages. The first lines of a temporary one are printed at the end."""
    if given:
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="quire-gateway-") as folder:
        log = Path(folder) / "gateway.log"
        yield log
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    for line in lines[:_LOG_LINES]:
        print(f"quire: {line}", file=sys.stderr)
    if len(lines) > _LOG_LINES:
        print(f"quire: {len(lines) - _LOG_LINES:,} more lines; --log FILE keeps all of them.", file=sys.stderr)


@command(
    STORE,
    examples=("quire gateway sessions agent.db",),
    about="The figures include all gateways that used the store. Tokens saved are the tokens that folds left out;"
    " their price is the price of uncached input tokens of the model.",
)
def run_gateway_sessions(options: argparse.Namespace, out: Output) -> None:
    from quire.server.gateway_ledger import SESSIONS, GatewaySession, Ledger, first_prompt

    with quire.Library(options.where, create=False) as library:
        ledger = Ledger(library)
        sessions = ledger.sessions()
        ledger.close()
        known = {session.name for session in sessions}
        stored = list(library.list(prefix=SESSIONS))
        sessions += [GatewaySession(name=name) for name in stored if name not in known]
        prompts = {}
        for name in stored:
            with library.open(name, create=False) as context:
                prompts[name] = first_prompt(context)
    if out.json:
        for session in sessions:
            out.value({**msgspec.to_builtins(session), "prompt": prompts.get(session.name, "")})
        return
    if not sessions:
        out.line("no sessions; start a client with: quire gateway run STORE -- claude")
    for session in sessions:
        figures = f"{count_of(session.requests, 'request')}, {count_of(session.folds, 'fold')}"
        figures += f", {session.saved_tokens:,} tokens saved"
        trouble = f", {count_of(session.retries, 'retry')}, {count_of(session.errors, 'error')}"
        trouble += f", {count_of(session.bypasses, 'bypassed request')}" if session.bypasses else ""
        money = "" if not session.saved_money else f" (${session.saved_money:,.2f})"
        out.line(f"{session.name}  {session.chosen or session.mode}  {figures}{money}{trouble}")
        if prompts.get(session.name):
            out.line(out.paint.dim(f"  {shorten(prompts[session.name], _PROMPT_WIDTH, placeholder='…')}"))


@command(
    argument("where", metavar="WHERE", nargs="?", help="the store to record into (default: a new temporary file)"),
    argument("-b", "--budget", type=token_count, default=2_000, metavar="TOKENS", help="the most tokens (default: 2k)"),
    argument("--fast", action="store_true", help="no pauses on a terminal"),
    examples=("quire gateway demo", "quire gateway demo agent.db --fast"),
    about="A scripted client sends the conversation of quire demo through a real gateway to a stub of a provider, which"
    " answers as recorded. It works offline. Requires the extra gateway.",
)
def run_gateway_demo(options: argparse.Namespace, out: Output) -> None:
    from quire.cli.commands.gateway_demo import play_gateway_demo

    play_gateway_demo(options.where, options.budget, out, fast=options.fast)


@command(
    STORE,
    argument("session", metavar="SESSION", help="the name of a session, or the start or the end of its id"),
    argument("--client", choices=("claude", "codex"), help="the client to write for (default: that of the session)"),
    argument("--folder", metavar="DIR", help="the working folder of the session (default: this one)"),
    argument("--file", metavar="FILE", help="the file to write (default: where the client looks for sessions)"),
    examples=(
        "quire gateway handoff agent.db 1b2c3d4e",
        "quire gateway handoff agent.db 1b2c3d4e --file a.jsonl",
    ),
    about="The new session contains the current view with its folded lines.",
)
def run_gateway_handoff(options: argparse.Namespace, out: Output) -> None:
    from quire.gateway.handoff import find_session, write_handoff

    with quire.Library(options.where, create=False) as library:
        done = write_handoff(
            library,
            find_session(library, options.session),
            client=options.client,
            folder=Path(options.folder) if options.folder else None,
            file=Path(options.file) if options.file else None,
        )
    value = {"file": str(done.path), "session_id": done.session_id, "command": done.command}
    out.result(value, f"wrote {done.path}", f"resume it with: {out.paint.cyan(done.command)}")


_TOKEN = "QUIRE_TOKEN"
_PORT = 8379


@command(
    STORE,
    argument(
        "--anthropic", metavar="URL", help="the upstream for clients of Anthropic, such as https://api.anthropic.com"
    ),
    argument("--openai", metavar="URL", help="the upstream for clients of OpenAI, such as https://api.openai.com"),
    _mode("observe"),
    _BUDGET,
    argument("--host", default="127.0.0.1", metavar="HOST", help="address to bind (default: %(default)s)"),
    argument("--port", type=int, default=_PORT, metavar="N", help="0 is any free port (default: %(default)s)"),
    argument("--token-file", metavar="FILE", help="the file of the access token; created at the first start"),
    argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another host name that requests may use"
    ),
    REDACT,
    examples=(
        "quire gateway agent.db --anthropic https://api.anthropic.com",
        "quire gateway agent.db --anthropic https://api.anthropic.com --mode fold --budget 120k",
    ),
    about="Clients use the printed address as their base URL and send their own credentials, which are never stored."
    f" With {_TOKEN} or a token file, the address contains an access token; other machines can reach the gateway only"
    " with one. Requires the extra gateway.",
)
def run_gateway(options: argparse.Namespace, out: Output) -> None:
    from quire.gateway import serve

    serve(
        options.where,
        ready=lambda running: _print_address(running, out),
        token=os.environ.get(_TOKEN) or None,
        hosts=options.allow_host,
        redact=quire.redact_secrets if options.redact else None,
        **pick(options, "anthropic", "openai", "mode", "budget", "host", "port", "token_file"),
    )


def _print_address(running: "RunningGateway", out: Output) -> None:
    if out.json:
        out.value({"url": running.url, "mode": running.gateway.options.mode})
    else:
        out.line(f"the gateway is at {out.paint.cyan(running.url)} ({running.gateway.options.mode})")
        for name, variable, end in (("anthropic", "ANTHROPIC_BASE_URL", ""), ("openai", "OPENAI_BASE_URL", "/v1")):
            if name in running.gateway.upstreams:
                out.line(f"  {variable}={running.url}{end}")
        out.line(out.paint.dim("Ctrl-C stops it"))
    sys.stdout.flush()
