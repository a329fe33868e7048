"""The clients that the gateway can start: how each one gets the address of the gateway and an MCP server for one run.

Nothing is written to the configuration of a client: an address and a server are environment variables or arguments.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from quire.errors import InvalidValue, short_repr

_SERVER = "quire"
"""The name of the MCP server in a client."""
_START_SECONDS = 60
_OPENCODE = "OPENCODE_CONFIG_CONTENT"


class Launch(NamedTuple):
    """A client to start: its command, and the variables to add to its environment."""

    command: list[str]
    variables: dict[str, str]


class _Start(NamedTuple):
    """What a client needs: the command, the address of the gateway, the command of an MCP server, the environment."""

    command: Sequence[str]
    address: str
    mcp: Sequence[str]
    environment: Mapping[str, str]


def prepare(
    command: Sequence[str],
    address: str,
    *,
    names: Sequence[str] = (),
    mcp: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> Launch:
    """Return how to start a client that uses the gateway at `address`.

    `names` are variables that get the address, for a client that quire does not know. `mcp` is the command of an MCP
    server that the client starts for this run. Raise `InvalidValue` if the client cannot be given the address or the
    server.
    """
    if not command:
        known = ", ".join(_CLIENTS)
        raise InvalidValue(
            f"is missing; give the command of a client, such as -- claude. Known clients: {known}.", argument="command"
        )
    for each in names:
        if not each or "=" in each or "\0" in each:
            raise InvalidValue(f"is {short_repr(each)}; the name of a variable is needed.", argument="env")
    name = PurePath(command[0]).stem
    if name in _CLIENTS:
        launch = _CLIENTS[name](_Start(command, address, mcp, environment))
    elif not names:
        raise InvalidValue(
            f"is needed for {short_repr(name)}: the variable with its base URL, such as OPENAI_BASE_URL."
            f" Known clients, which need none: {', '.join(_CLIENTS)}.",
            argument="env",
        )
    elif mcp:
        raise _no_mcp(name)
    else:
        launch = Launch(list(command), {})
    launch.variables.update({each: _address_for(each, address) for each in names})
    return launch


def _no_mcp(name: str) -> InvalidValue:
    known = "claude, codex and opencode accept an MCP server"
    return InvalidValue(f"cannot be used with {short_repr(name)}; {known}.", argument="mcp")


def _address_for(name: str, address: str) -> str:
    """Return the value of a variable: clients of Anthropic add `/v1` to a base URL themselves."""
    return address if "ANTHROPIC" in name.upper() else f"{address}/v1"


def _prepare_claude(start: _Start) -> Launch:
    first, *rest = start.command
    servers = {"mcpServers": {_SERVER: {"command": start.mcp[0], "args": list(start.mcp[1:])}}} if start.mcp else {}
    added = [f"--mcp-config={_to_json(servers)}"] if servers else []
    return Launch([first, *added, *rest], {"ANTHROPIC_BASE_URL": start.address})


def _prepare_codex(start: _Start) -> Launch:
    first, *rest = start.command
    added = ["-c", f"openai_base_url={_to_json(f'{start.address}/v1')}"]
    if start.mcp:
        where = f"mcp_servers.{_SERVER}"
        added += ["-c", f"{where}.command={_to_json(start.mcp[0])}"]
        added += ["-c", f"{where}.args={_to_json(list(start.mcp[1:]))}"]
        added += ["-c", f"{where}.startup_timeout_sec={_START_SECONDS}"]  # by default Codex gives up after 10 s
        if path := start.environment.get("PYTHONPATH"):  # Codex passes on only a few variables
            added += ["-c", f"{where}.env.PYTHONPATH={_to_json(path)}"]
    return Launch([first, *added, *rest], {})


def _prepare_opencode(start: _Start) -> Launch:
    """Add to the configuration that OpenCode reads from a variable, after its files."""
    config = _read_config(start.environment.get(_OPENCODE, ""))
    providers = config.setdefault("provider", {})
    for provider in ("anthropic", "openai", *_named_providers(start.command)):
        providers.setdefault(provider, {}).setdefault("options", {})["baseURL"] = f"{start.address}/v1"
    if start.mcp:
        server = {"type": "local", "command": list(start.mcp), "enabled": True}
        config.setdefault("mcp", {})[_SERVER] = server
    return Launch(list(start.command), {_OPENCODE: _to_json(config)})


def _named_providers(command: Sequence[str]) -> list[str]:
    """Return the provider of the model that the command names, as in `--model local/qwen`."""
    for before, word in pairwise(command):
        if before in ("-m", "--model") and "/" in word:
            return [word.partition("/")[0]]
    found = [word.partition("=")[2].partition("/")[0] for word in command if word.startswith("--model=")]
    return [name for name in found if name]


def _read_config(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.DecodeError as error:
        raise InvalidValue(f"{_OPENCODE} is not a JSON object: {error}.", argument="environment") from None


def _prepare_aider(start: _Start) -> Launch:
    if start.mcp:
        raise _no_mcp("aider")
    address = start.address
    return Launch(list(start.command), {"OPENAI_API_BASE": f"{address}/v1", "ANTHROPIC_API_BASE": address})


_CLIENTS: Mapping[str, Callable[[_Start], Launch]] = {
    "claude": _prepare_claude,
    "codex": _prepare_codex,
    "opencode": _prepare_opencode,
    "aider": _prepare_aider,
}


def _to_json(value: object) -> str:
    """Return a value as JSON. Strings and lists of strings have the same form in TOML."""
    return msgspec.json.encode(value).decode()
