"""The command gateway run: starts a client with a gateway of its own."""

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import quire
from quire.cli.command import STORE, argument, command, token_count
from quire.cli.terminal import Output, pick

_ANTHROPIC = "https://api.anthropic.com"
_OPENAI = "https://api.openai.com"


@command(
    STORE,
    argument("command", nargs="*", metavar="CLIENT", help="the command of the client, after --"),
    argument("--anthropic", metavar="URL", help=f"the upstream for clients of Anthropic (default: {_ANTHROPIC})"),
    argument("--openai", metavar="URL", help=f"the upstream for clients of OpenAI (default: {_OPENAI})"),
    argument(
        "--mode",
        choices=("observe", "fold"),
        default="fold",
        help="observe: forward every byte and record; fold: also shorten requests above the budget (default: fold)",
    ),
    argument(
        "-b",
        "--budget",
        type=token_count,
        default=120_000,
        metavar="TOKENS",
        help="the most tokens of a request (default: 120k)",
    ),
    argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME",
        help="a variable that gets the gateway's address, for a client that quire does not know",
    ),
    argument("--log", metavar="FILE", help="the file for messages of the gateway (default: a temporary file)"),
    examples=(
        "quire gateway run agent.db -- claude",
        "quire gateway run agent.db --budget 80k -- codex",
        "quire gateway run agent.db --env OPENAI_BASE_URL -- my-agent --verbose",
    ),
    about="It knows claude, codex, opencode and aider, and writes nothing to their configuration. The exit code is that"
    " of the client. Requires pip install 'quire[gateway]'.",
)
def run_gateway_run(options: argparse.Namespace, out: Output) -> int:
    from quire.gateway.clients import prepare
    from quire.gateway.supervisor import Supervisor

    prepare(options.command, "http://127.0.0.1", names=options.env)  # refuses before anything starts
    program = shutil.which(options.command[0])
    if program is None:
        raise quire.InvalidValue(f"is {options.command[0]!r}, which is not installed.", argument="command")
    settings = pick(options, "mode", "budget")
    settings |= {"anthropic": options.anthropic or _ANTHROPIC, "openai": options.openai or _OPENAI, "port": 0}
    with _log_file(options.log) as log, Supervisor(options.where, settings, log) as gateway:
        launch = prepare(options.command, gateway.url, names=options.env)
        return _run_client([program, *launch.command[1:]], launch.variables)


def _run_client(words: list[str], variables: dict[str, str]) -> int:
    """Run the client in this terminal, and return its exit code. Ctrl-C is for the client."""
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
    """Yield the file for messages. A temporary one is removed at the end."""
    if given:
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="quire-gateway-") as folder:
        yield Path(folder) / "gateway.log"
