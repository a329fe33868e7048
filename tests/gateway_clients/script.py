"""A model for coding agents: it reads numbered files with the client's own tool, one per step, and then stops.

A prompt such as "Do task alpha in 20 steps" starts it. Each tool call has an id with the task, the step and the number
of steps, and the next answer follows from the newest id in the request. So the model has no state: a retry gets the
same answer, and a view with folded messages does not confuse it. A request for a summary gets one with the last id,
and a request without the tool gets a title.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.strict_provider import Body, Call, Reply

_TASK = re.compile(r"task (\w+) in (\d+) steps")
_ID = re.compile(r"call_([a-z]+)_(\d+)_of_(\d+)")
_SUMMARY = re.compile(r"(?i)(detailed summary of (?:the|this|our) conversation|handoff summary|CONTEXT CHECKPOINT)")
_SHELLS: Mapping[str, str] = {
    "Bash": "command",
    "bash": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "run_shell_command": "command",
    "exec": "",
}
"""The shell tools of the clients, with the name of their argument."""
_AGENTS = "collaboration"
"""The namespace of Codex's tools for sub-agents."""
_WAITS = 8
_CALLS = ("function_call", "custom_tool_call", "reasoning")


def write_facts(folder: Path, task: str, steps: int, *, words: int, seed: int) -> list[str]:
    """Write one file for each step, with a unique fact and random words. Return the facts."""
    random = Random(f"{seed} {task}")
    folder.mkdir(parents=True, exist_ok=True)
    facts = []
    for step in range(steps):
        fact = f"station{random.randrange(16**8):08x}"
        text = " ".join(f"{random.randrange(16**5):05x}" for _ in range(words))
        (folder / f"{task}-{step}.txt").write_text(f"The code of step {step} is {fact}.\n{text}\n")
        facts.append(fact)
    return facts


class ToolScript:
    """The script of the model. `calls`, `summaries` and `titles` count its answers of each kind."""

    def __init__(self, *, thinking: bool = False) -> None:
        self.thinking = thinking
        self.calls = 0
        self.summaries = 0
        self.titles = 0

    def __call__(self, body: Body) -> Reply:
        texts = list(_last_texts(body))
        newest = "\n".join(texts)
        tool = find_shell(body)
        if _SUMMARY.search(newest) or _is_trigger(body):
            self.summaries += 1
            return Reply(f"<summary>The work so far. The last step is {_last_id(body)}.</summary>")
        if tool is None:
            self.titles += 1
            return Reply(json.dumps({"title": "A title"}))
        task, step = self._next_step(newest)
        if not task:
            return Reply("There is nothing to do.")
        if step[0] >= step[1]:
            return Reply(f"The task {task} is done after {step[1]} steps.")
        self.calls += 1
        call_id = f"call_{task}_{step[0]}_of_{step[1]}"
        command = f"cat facts/{task}-{step[0]}.txt"
        arguments: Body | str = {_SHELLS.get(tool, "input"): command}
        if tool == "exec":  # Codex with its newest models: the input is JavaScript
            arguments = f'const r = await tools.exec_command({{cmd: "{command}"}}); text(r.output);'
        elif tool in ("Bash", "bash"):
            arguments = {"command": command, "description": "Read a file"}
        thinking = (f"The next file is number {step[0]} of task {task}.",) if self.thinking else ()
        return Reply(f"I read file {step[0]}.", (Call(call_id, tool, arguments),), thinking)

    def _next_step(self, newest: str) -> tuple[str, tuple[int, int]]:
        """Return the task, the next step and the number of steps; no task if there is none."""
        ids, tasks = list(_ID.finditer(newest)), list(_TASK.finditer(newest))
        if ids and (not tasks or ids[-1].start() > tasks[-1].start()):
            return ids[-1][1], (int(ids[-1][2]) + 1, int(ids[-1][3]))
        if tasks:  # also after the result of a step, if the client was killed before it got the next one
            return tasks[-1][1], (0, int(tasks[-1][2]))
        return "", (0, 0)


class AgentScript:
    """A model that asks two sub-agents if the prompt says so, and waits for them. Otherwise it is a `ToolScript`."""

    def __init__(self, tasks: Sequence[str] = ("alpha", "beta"), steps: int = 2) -> None:
        self.tasks, self.steps = tasks, steps
        self.plain = ToolScript()

    def __call__(self, body: Body) -> Reply:
        newest = "\n".join(_last_texts(body))
        said = json.dumps(body.get("messages") or body.get("input"))
        if _TASK.search(newest) or _ID.search(newest) or find_shell(body) is None:
            return self.plain(body)
        if "Ask two agents" in newest:
            return Reply("I ask two agents.", tuple(self._spawn(body, task) for task in self.tasks))
        ended = sum(f"task {task} is done after" in said for task in self.tasks)
        waits = len(set(re.findall(r"call_wait_\d+", said)))
        if "input" in body and ended < len(self.tasks) and waits < _WAITS:  # Codex waits with a tool
            return Reply("I wait.", (Call(f"call_wait_{waits}", "wait_agent", {"timeout_ms": 10_000}, _AGENTS),))
        return Reply("Both are done.")

    def _spawn(self, body: Body, task: str) -> Call:
        prompt = f"Do task {task} in {self.steps} steps"
        if "input" in body:
            return Call(f"call_agent_{task}", "spawn_agent", {"task_name": task, "message": prompt}, _AGENTS)
        arguments = {"description": "read", "subagent_type": "general-purpose", "prompt": prompt}
        return Call(f"call_agent_{task}", "Agent", arguments)


def find_shell(body: Body) -> str | None:
    """Return the name of the client's shell tool in a request."""
    listed = [*(body.get("tools") or ()), *_added_tools(body)]
    names = [(tool.get("function") or tool).get("name") for tool in listed]
    return next((name for name in names if name in _SHELLS), None)


def _added_tools(body: Body) -> Iterator[Body]:
    """Yield the tools that Codex sends as an item of the input, for its newest models."""
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        for space in item.get("tools") or ():
            yield from space.get("tools") or ()


def _is_trigger(body: Body) -> bool:
    """Return whether Codex asks the API to compact the history."""
    items = body.get("input")
    return isinstance(items, list) and items[-1].get("type") == "compaction_trigger"


def _last_id(body: Body) -> str:
    found = list(_ID.finditer(json.dumps(body.get("messages") or body.get("input") or [])))
    return found[-1].group() if found else "none"


def _last_texts(body: Body) -> Iterator[str]:
    """Yield the texts and the call ids of the messages after the last answer of the model."""
    messages = body.get("messages") or body.get("input") or []
    if isinstance(messages, str):
        yield messages
        return
    tail: list[Body] = []
    for message in reversed(messages):
        if message.get("role") == "assistant" or message.get("type") in _CALLS:
            break
        tail.append(message)
    for message in reversed(tail):
        yield from _texts_of(message)


def _texts_of(message: Body) -> Iterator[str]:
    for name in ("tool_call_id", "call_id"):
        if name in message:
            yield str(message[name])
            return
    if message.get("type") == "compaction":
        yield message["encrypted_content"]
    content: Any = message.get("content")
    for block in [{"text": content}] if isinstance(content, str) else content or []:
        yield str(block.get("tool_use_id") or block.get("text") or block.get("encrypted_content") or "")
