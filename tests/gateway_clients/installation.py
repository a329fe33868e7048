"""Install the real clients once, outside the repository: with npm and pip, in the user's cache directory.

A client that cannot be installed skips its tests by name; with CI=true they fail. Parallel runs wait for each other.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

CLIENTS = {
    "claude": "@anthropic-ai/claude-code@2.1.328",
    "codex": "@openai/codex@0.169.0",
    "opencode": "opencode-ai@1.18.33",
    "qwen": "@qwen-code/qwen-code@0.24.4",
    "aider": "aider-chat==0.86.2",
}
NODE = "node@22.23.3"
"""Installed beside the clients that are scripts of Node: their engines refuse older ones."""
_SCRIPTS = ("qwen",)


def folder() -> Path:
    """Return the directory of the installed clients: `QUIRE_TEST_CLIENTS`, or one in the user's cache."""
    given = os.environ.get("QUIRE_TEST_CLIENTS")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quire-clients"


@contextmanager
def exclusive(name: str) -> Iterator[Path]:
    """Yield the directory of an installation. No other process installs it at the same time."""
    target = folder() / name
    target.mkdir(parents=True, exist_ok=True)
    with target.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it ends with the process, or when the file is closed
        yield target


@cache
def find_client(name: str) -> str:
    """Return the path of a client's program; install it first if it is missing. Skip the test if that fails."""
    package = CLIENTS[name]
    with exclusive(package.strip("@").replace("/", "-").replace("@", "-")) as target:
        program = target / ("bin" if name == "aider" else "node_modules/.bin") / name
        if not program.exists():
            npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", ".", package]
            npm += [NODE] if name in _SCRIPTS else []
            pip = [[sys.executable, "-m", "venv", "."], ["bin/pip", "install", "--quiet", package]]
            (target / "package.json").write_text('{"private": true}')
            install(package, target, *(pip if name == "aider" else [npm]))
        if not program.exists():
            refuse(package, "its program is missing")
        return str(program)


def install(name: str, target: Path, *commands: list[str]) -> None:
    """Run the commands of an installation. Skip the test if one fails."""
    for command in commands:
        try:
            subprocess.run(command, cwd=target, check=True, capture_output=True, timeout=500)
        except (OSError, subprocess.SubprocessError) as error:
            refuse(name, f"{error} {(getattr(error, 'stderr', b'') or b'').decode(errors='replace')[-500:]}")


def refuse(name: str, problem: str) -> None:
    """Skip the test; with CI=true it fails."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{name} cannot be installed: {problem}")
