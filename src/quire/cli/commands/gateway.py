"""The command gateway: runs the proxy that clients use as the base URL of their model provider."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

import quire
from quire.cli.command import REDACT, STORE, argument, command, token_count
from quire.cli.terminal import Output, pick

if TYPE_CHECKING:
    from quire.gateway.gateway_server import RunningGateway

_TOKEN = "QUIRE_TOKEN"
_PORT = 8379


@command(
    STORE,
    argument(
        "--anthropic", metavar="URL", help="the upstream for clients of Anthropic, such as https://api.anthropic.com"
    ),
    argument("--openai", metavar="URL", help="the upstream for clients of OpenAI, such as https://api.openai.com"),
    argument(
        "--mode",
        choices=("observe", "fold"),
        default="observe",
        help="observe: forward every byte and record; fold: also shorten requests above the budget (default: observe)",
    ),
    argument(
        "-b",
        "--budget",
        type=token_count,
        default=120_000,
        metavar="TOKENS",
        help="the most tokens of a request (default: 120k)",
    ),
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
    " with one. Requires pip install 'quire[gateway]'.",
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
