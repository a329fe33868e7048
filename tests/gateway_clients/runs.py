"""Run a real client in a folder of its own, against any base URL, without a terminal."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quire.gateway.clients import Launch, prepare
from tests.gateway_clients.installation import find_client
from tests.gateway_clients.script import write_facts

MODELS = {"claude": "claude-fable-5-1", "codex": "gpt-6.1-sol", "opencode": "fake/fake-model", "aider": "openai/gpt-4o"}


def _opencode(limit: int) -> dict[str, object]:
    """Return the configuration of OpenCode: one model with a context window of `limit` tokens."""
    models = {"fake-model": {"name": "fake", "limit": {"context": limit, "output": 2_000}}}
    options = {"apiKey": "sk-test-key"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Fake", "options": options, "models": models}
    return {"provider": {"fake": provider}, "snapshot": False, "lsp": False, "formatter": False}


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

    def write_facts(self, task: str, steps: int, *, words: int = 40, seed: int = 1) -> list[str]:
        """Write the files of a task, and return its facts."""
        return write_facts(self.work / "facts", task, steps, words=words, seed=seed)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the client, without the address of a provider."""
        home = str(self.home)
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
        return kept | {
            "HOME": home,
            "TERM": "dumb",
            "XDG_CONFIG_HOME": f"{home}/config",
            "XDG_DATA_HOME": f"{home}/data",
            "XDG_CACHE_HOME": f"{home}/cache",
            "XDG_STATE_HOME": f"{home}/state",
            "CODEX_HOME": f"{home}/codex",
            "ANTHROPIC_API_KEY": "sk-ant-test-key",
            "OPENAI_API_KEY": "sk-test-key",
            "CODEX_API_KEY": "sk-test-key",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",
            "OPENCODE_PURE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_CONFIG_CONTENT": json.dumps(_opencode(self.context_limit or 200_000)),
            **({"CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(self.context_limit)} if self.context_limit else {}),
        }

    def command(self, prompt: str, *arguments: str) -> list[str]:
        """Return the command for one prompt without a terminal."""
        match self.name:
            case "claude":
                fixed = ["-p", "--dangerously-skip-permissions", "--output-format", "json", "--model", self.model]
                return [self.program, *fixed, *arguments, prompt]
            case "codex":
                fixed = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", self.model]
                limit = ["-c", f"model_context_window={self.context_limit}"] if self.context_limit else []
                return [self.program, "exec", *fixed, *limit, *arguments, prompt]
            case "opencode":
                return [self.program, "run", "-m", self.model, *arguments, prompt]
            case _:
                quiet = ["--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-gitignore"]
                fixed = ["--model", self.model, "--no-auto-commits", "--yes-always", "--map-tokens", "0", *quiet]
                return [self.program, *fixed, *arguments, "--message", prompt]

    def ask(
        self,
        address: str,
        prompt: str,
        *arguments: str,
        mcp: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        seconds: float = 240,
    ) -> str:
        """Run the client with one prompt and return its output. An exit code other than 0 is an error."""
        launch = prepare(self.command(prompt, *arguments), address, mcp=mcp, environment=self.environment)
        return self.run(launch, variables=variables, seconds=seconds)

    def ask_and_leave(self, address: str, prompt: str, *arguments: str, when: Callable[[], bool]) -> None:
        """Start the client with one prompt, and kill it as soon as `when` returns true."""
        launch = prepare(self.command(prompt, *arguments), address, environment=self.environment)
        with subprocess.Popen(
            launch.command,
            cwd=self.work,
            env=self.environment | launch.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            end = time.monotonic() + 120
            while not when():
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
            os.killpg(process.pid, signal.SIGKILL)

    def run(self, launch: Launch, *, variables: Mapping[str, str] | None = None, seconds: float = 240) -> str:
        """Start a client and return its output. An exit code other than 0 is an error."""
        done = subprocess.run(
            launch.command,
            cwd=self.work,
            env=self.environment | launch.variables | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert done.returncode == 0, f"{self.name} failed: {done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        return done.stdout
