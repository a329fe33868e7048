"""Run a real client in a folder of its own, against any base URL, without a terminal."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gateway_clients.installation import find_client
from tests.gateway_clients.script import write_facts
from tests.strict_provider import Api

MODELS = {
    "claude": "claude-fable-5-1",
    "codex": "gpt-6.1-sol",
    "opencode": "fake/fake-model",
    "qwen": "fake-model",
    "aider": "openai/gpt-4o",
}
AGAIN: Mapping[str, tuple[str, ...]] = {
    "claude": ("-c",),
    "codex": ("resume", "--last"),
    "opencode": ("-c",),
    "qwen": ("-c",),
}
"""The arguments with which a client goes on with its last session."""


def api_of(name: str) -> Api:
    """Return the API that a client speaks by default."""
    apis: Mapping[str, Api] = {"claude": "anthropic", "codex": "responses"}
    return apis.get(name, "chat")


@dataclass
class Client:
    """An installed client with a home and a working folder below `root`. Nothing of the user's own is read."""

    name: str
    root: Path
    model: str = ""
    context_limit: int | None = None
    """The context window that the client assumes; by default its own value for the model."""

    def __post_init__(self) -> None:
        self.model = self.model or MODELS[self.name]
        self.program = find_client(self.name)
        self.home, self.work = self.root / "home", self.root / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        (self.home / "codex").mkdir(parents=True, exist_ok=True)
        if not (self.work / ".git").exists():
            subprocess.run(["git", "init", "-q"], cwd=self.work, check=True)
        self._settle_opencode(self.home / "config" / "opencode")

    def _settle_opencode(self, folder: Path) -> None:
        """Let OpenCode find the package of its plugins, which it otherwise installs from npm in each new home."""
        (folder / "node_modules").mkdir(parents=True, exist_ok=True)
        lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
        (folder / "package-lock.json").write_text(json.dumps(lock))

    def write_facts(self, task: str, steps: int, *, words: int = 40, seed: int = 1) -> list[str]:
        """Write the files of a task, and return its facts."""
        return write_facts(self.work / "facts", task, steps, words=words, seed=seed)

    def environment(self, address: str = "") -> dict[str, str]:
        """Return the environment of the client; it sends its requests to `address` if there is one."""
        home = str(self.home)
        passed = {name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ}
        folders = {f"XDG_{name.upper()}_HOME": f"{home}/{name}" for name in ("config", "data", "cache", "state")}
        switches = ("DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "IS_SANDBOX", "OPENCODE_PURE")
        more = ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD")
        limit = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(self.context_limit)} if self.context_limit else {}
        return {
            **passed,
            **folders,
            **dict.fromkeys(switches, "1"),
            **{f"OPENCODE_DISABLE_{name}": "1" for name in more},
            **limit,
            "PATH": os.pathsep.join([str(Path(self.program).parent), os.environ["PATH"]]),
            "HOME": home,
            "TERM": "dumb",
            "CODEX_HOME": f"{home}/codex",
            "ANTHROPIC_API_KEY": "sk-ant-test-key",
            "OPENAI_API_KEY": "sk-test-key",
            "CODEX_API_KEY": "sk-test-key",
            "OPENAI_MODEL": self.model,  # of Qwen Code
            "OPENCODE_CONFIG_CONTENT": json.dumps(self._opencode(address)),
            **self._addresses(address),
        }

    def _addresses(self, address: str) -> dict[str, str]:
        if not address:
            return {}
        if self.name == "claude":
            return {"ANTHROPIC_BASE_URL": address}
        url = f"{address}/v1"
        return {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "ANTHROPIC_API_BASE": address}

    def _opencode(self, address: str) -> dict[str, object]:
        """Return the configuration of OpenCode: one model with a context window."""
        limit = {"context": self.context_limit or 200_000, "output": 2_000}
        options = {"apiKey": "sk-test-key", **({"baseURL": f"{address}/v1"} if address else {})}
        models = {"fake-model": {"name": "fake", "limit": limit}}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Fake", "options": options, "models": models}
        slow = {"mcp_timeout": 120_000}  # milliseconds; a busy machine starts a server slowly
        config = {"provider": {"fake": provider}, "experimental": slow}
        return {**config, "snapshot": False, "lsp": False, "formatter": False}

    def command(self, prompt: str, *arguments: str, address: str = "") -> list[str]:
        """Return the command for one prompt without a terminal."""
        match self.name:
            case "claude":
                fixed = ["-p", "--dangerously-skip-permissions", "--output-format", "json", "--model", self.model]
                return [self.program, *fixed, *arguments, prompt]
            case "codex":
                fixed = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", self.model]
                limit = ["-c", f"model_context_window={self.context_limit}"] if self.context_limit else []
                url = ["-c", f'openai_base_url="{address}/v1"'] if address else []
                return [self.program, "exec", *fixed, *limit, *url, *arguments, prompt]
            case "opencode":
                return [self.program, "run", "-m", self.model, *arguments, prompt]
            case "qwen":
                return [self.program, "--yolo", "--auth-type", "openai", *arguments, "-p", prompt]
            case _:
                quiet = ["--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-gitignore"]
                fixed = ["--model", self.model, "--no-auto-commits", "--yes-always", "--map-tokens", "0", *quiet]
                return [self.program, *fixed, *arguments, "--message", prompt]

    def ask(self, address: str, prompt: str, *arguments: str, seconds: float = 240) -> str:
        """Run the client with one prompt and return its output. An exit code other than 0 is an error."""
        done = subprocess.run(
            self.command(prompt, *arguments, address=address),
            **self.surroundings(address),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{self.name} failed: {done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        return str(done.stdout)

    def ask_and_leave(self, address: str, prompt: str, *arguments: str, when: Callable[[], bool]) -> None:
        """Start the client with one prompt, and kill it as soon as `when` returns true."""
        command = self.command(prompt, *arguments, address=address)
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        with subprocess.Popen(command, **self.surroundings(address), **silent) as process:
            end = time.monotonic() + 120
            while not when():
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)

    def surroundings(self, address: str) -> dict[str, Any]:
        """Return the folder, the environment and the input of its process."""
        return {"cwd": self.work, "env": self.environment(address), "stdin": subprocess.DEVNULL}


def gateway_command(store: Path, upstream: str, command: list[str], *options: str) -> list[str]:
    """Return the command of a user who runs a client behind a gateway."""
    places = ["--anthropic", upstream, "--openai", upstream, "--log", str(store.with_suffix(".log"))]
    return [sys.executable, "-m", "quire", "gateway", "run", str(store), *places, *options, "--", *command]
