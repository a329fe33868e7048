"""Install the real clients once, outside the repository: with npm and pip, in the user's cache directory.

A client that cannot be installed skips its tests by name; with CI=true they fail.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

CLIENTS = {
    "claude": "@anthropic-ai/claude-code@2.1.325",
    "codex": "@openai/codex@0.166.0",
    "opencode": "opencode-ai@1.18.18",
    "aider": "aider-chat==0.86.2",
}


def folder() -> Path:
    """Return the directory of the installed clients: `QUIRE_TEST_CLIENTS`, or one in the user's cache."""
    given = os.environ.get("QUIRE_TEST_CLIENTS")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "quire-clients"


@cache
def find_client(name: str) -> str:
    """Return the path of a client's program; install it first if it is missing. Skip the test if that fails."""
    target = folder() / CLIENTS[name].strip("@").replace("/", "-").replace("@", "-")
    program = target / ("bin" if name == "aider" else "node_modules/.bin") / name
    if not program.exists():
        problem = _install(name, target)
        if problem or not program.exists():
            text = f"{CLIENTS[name]} cannot be installed: {problem or 'its program is missing'}"
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(text)
    return str(program)


def _install(name: str, target: Path) -> str:
    """Install a client into a directory that no other run sees until it is complete. Return the problem."""
    made = target.with_name(f"{target.name}.{os.getpid()}")
    made.mkdir(parents=True)
    commands = [["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", ".", CLIENTS[name]]]
    if name == "aider":  # an environment cannot be moved, so it is made in its place
        made.rmdir()
        made = target
        commands = [[sys.executable, "-m", "venv", "."], ["bin/pip", "install", "--quiet", CLIENTS[name]]]
        made.mkdir(parents=True, exist_ok=True)
    else:
        (made / "package.json").write_text('{"private": true}')
    for command in commands:
        try:
            subprocess.run(command, cwd=made, check=True, capture_output=True, timeout=900)
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(made, ignore_errors=True)
            return f"{error} {(getattr(error, 'stderr', b'') or b'').decode(errors='replace')[-500:]}"
    if made != target:
        try:
            made.rename(target)
        except OSError:  # another run was quicker
            shutil.rmtree(made, ignore_errors=True)
    return ""
