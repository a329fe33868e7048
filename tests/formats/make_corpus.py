"""Writes the corpus of session files: `python -m tests.formats.make_corpus`.

LangChain, pydantic-ai, the OpenAI Agents SDK and LangGraph write their files themselves (the last one needs
langgraph-checkpoint-sqlite). The forms of Claude Code and Codex follow sessions that Claude Code 2.1.197 and Codex
0.166.0 wrote with a stub model.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.formats.talks import TALKS, Turn

CORPUS = Path(__file__).parent / "corpus"
Lines = list[dict[str, Any]]


def stamp(turn: Turn) -> str:
    return turn.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def openai_message(turn: Turn) -> dict[str, Any]:
    value: dict[str, Any] = {"role": turn.role, "content": turn.text or None}
    if turn.calls:
        value["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": json.dumps(c.arguments)}}
            for c in turn.calls
        ]
    if turn.answers:
        value["tool_call_id"] = turn.answers
    return value


def anthropic_message(turn: Turn) -> dict[str, Any]:
    if turn.answers:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": turn.answers, "content": turn.text}]}
    blocks: Lines = [{"type": "text", "text": turn.text}] if turn.text else []
    blocks += [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in turn.calls]
    return {"role": turn.role, "content": blocks if turn.calls else turn.text}


def responses_items(turn: Turn) -> Lines:
    if turn.answers:
        return [{"type": "function_call_output", "call_id": turn.answers, "output": turn.text}]
    kind = "output_text" if turn.role == "assistant" else "input_text"
    said = {"type": "message", "role": turn.role, "content": [{"type": kind, "text": turn.text}]}
    return [
        *([said] if turn.text else []),
        *(
            {"type": "function_call", "call_id": c.id, "name": c.name, "arguments": json.dumps(c.arguments)}
            for c in turn.calls
        ),
    ]


def write_openai(turns: list[Turn]) -> object:
    return [openai_message(turn) for turn in turns]


def write_openai_dated(turns: list[Turn]) -> Lines:
    return [{**openai_message(turn), "timestamp": stamp(turn)} for turn in turns]


def write_anthropic(turns: list[Turn]) -> object:
    prompt = "\n".join(turn.text for turn in turns if turn.role == "system")
    merged: Lines = []
    for turn in turns:
        if turn.role == "system":
            continue
        message = anthropic_message(turn)
        if turn.answers and merged and isinstance(merged[-1]["content"], list) and merged[-1]["role"] == "user":
            merged[-1]["content"] += message["content"]  # the results of one answer are one message
        else:
            merged.append(message)
    return {"model": "claude-x", "max_tokens": 9, **({"system": prompt} if prompt else {}), "messages": merged}


def write_responses(turns: list[Turn]) -> Lines:
    return [item for turn in turns for item in responses_items(turn)]


def write_responses_dated(turns: list[Turn]) -> Lines:
    return [{**item, "created_at": int(turn.at.timestamp())} for turn in turns for item in responses_items(turn)]


def langchain_messages(turns: list[Turn]) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    found: list[Any] = []
    for n, turn in enumerate(turns):
        match turn.role:
            case "system":
                found.append(SystemMessage(turn.text, id=f"m{n}"))
            case "user":
                found.append(HumanMessage(turn.text, id=f"m{n}"))
            case "tool":
                found.append(ToolMessage(turn.text, tool_call_id=turn.answers, id=f"m{n}"))
            case _:
                calls = [{"name": c.name, "args": c.arguments, "id": c.id, "type": "tool_call"} for c in turn.calls]
                found.append(AIMessage(turn.text, tool_calls=calls, id=f"m{n}"))
    return found


def write_langchain(turns: list[Turn]) -> object:
    from langchain_core.messages import messages_to_dict

    return messages_to_dict(langchain_messages(turns))


def write_dumpd(turns: list[Turn]) -> object:
    from langchain_core.load import dumpd

    return dumpd(langchain_messages(turns))


def write_pydantic_ai(turns: list[Turn]) -> object:
    from pydantic_ai import messages as m

    found: list[Any] = []
    for turn in turns:
        names = {c.id: c.name for other in turns for c in other.calls}
        if turn.role == "assistant":
            parts: list[Any] = [m.TextPart(turn.text)] if turn.text else []
            parts += [m.ToolCallPart(c.name, c.arguments, c.id) for c in turn.calls]
            found.append(m.ModelResponse(parts=parts, timestamp=turn.at, model_name="test"))
            continue
        part: Any = (
            m.SystemPromptPart(turn.text, timestamp=turn.at)
            if turn.role == "system"
            else m.UserPromptPart(turn.text, timestamp=turn.at)
            if turn.role == "user"
            else m.ToolReturnPart(names[turn.answers or ""], turn.text, turn.answers or "", timestamp=turn.at)
        )
        if found and isinstance(found[-1], m.ModelRequest):
            found[-1].parts = [*found[-1].parts, part]
        else:
            found.append(m.ModelRequest(parts=[part]))
    return m.ModelMessagesTypeAdapter.dump_python(found, mode="json")


def claude_code_lines(turns: list[Turn], session: str, agent: str = "") -> Iterator[dict[str, Any]]:
    """Yield a session as Claude Code 2.1 writes it: a line for every block of an answer, one result per line."""
    parent = None
    count = 0
    if not agent:
        yield {"type": "queue-operation", "operation": "enqueue", "timestamp": stamp(turns[0]), "sessionId": session}
    for place, turn in enumerate(turns):
        if turn.role == "system":
            continue  # its own prompt is not in the session
        message = anthropic_message(turn)
        blocks: list[Any] = [message["content"]]
        if turn.role == "assistant":
            content = message["content"]
            blocks = [[b] for b in ([{"type": "text", "text": content}] if isinstance(content, str) else content)]
        for block in blocks:
            count += 1
            uuid = f"00000000-0000-4000-8000-{count:012}"
            said: dict[str, Any] = {"role": message["role"], "content": block}
            if turn.role == "assistant":
                usage = {"input_tokens": 10, "output_tokens": 9}
                said = {"id": f"msg_{place}", "type": "message", "model": "claude-x", **said}
                said |= {"stop_reason": "tool_use" if turn.calls else "end_turn", "stop_sequence": None, "usage": usage}
            yield {
                "parentUuid": parent,
                "isSidechain": bool(agent),
                **({"agentId": agent} if agent else {}),
                "type": "assistant" if turn.role == "assistant" else "user",
                "message": said,
                "uuid": uuid,
                "timestamp": stamp(turn),
                "userType": "external",
                "cwd": "/repo",
                "sessionId": session,
                "version": "2.1.197",
                "gitBranch": "main",
            }
            parent = uuid
    if not agent:
        yield {"type": "last-prompt", "lastPrompt": "x", "leafUuid": parent, "sessionId": session}


def codex_lines(turns: list[Turn]) -> Iterator[dict[str, Any]]:
    """Yield a rollout as Codex 0.166 writes it."""
    meta: dict[str, Any] = {"id": "01a1e773-cfcc-7342-b515-0db7db0aac67", "cwd": "/repo", "originator": "codex_exec"}
    meta |= {"cli_version": "0.166.0", "source": "exec", "timestamp": stamp(turns[0])}
    if turns[0].role == "system":
        meta["base_instructions"] = {"text": turns[0].text}
    yield {"timestamp": stamp(turns[0]), "ordinal": 0, "type": "session_meta", "payload": meta}
    passing = {"internal_chat_message_metadata_passthrough": {"turn_id": "t1"}}
    for n, turn in enumerate(turns):
        if n == 0 and turn.role == "system":
            continue
        for item in responses_items(turn):
            yield {"timestamp": stamp(turn), "type": "response_item", "payload": {**item, **passing}}
        event = {"type": "token_count", "info": None}
        yield {"timestamp": stamp(turn), "type": "event_msg", "payload": event}


def write_agents(path: Path) -> None:
    """Write one database of the OpenAI Agents SDK with all talks, through the SDK's own session."""
    from agents import SQLiteSession

    async def fill() -> None:
        for name, turns in TALKS.items():
            session = SQLiteSession(name, str(path))
            for turn in turns:
                await session.add_items(responses_items(turn))  # type: ignore[arg-type]
            session.close()

    asyncio.run(fill())
    with sqlite3.connect(path) as file:
        place = 0
        for turns in TALKS.values():
            for turn in turns:
                for _ in responses_items(turn):
                    place += 1
                    time = turn.at.strftime("%Y-%m-%d %H:%M:%S")
                    file.execute("UPDATE agent_messages SET created_at = ? WHERE id = ?", (time, place))
        file.execute("PRAGMA journal_mode=DELETE")
    file.close()


def write_langgraph(path: Path) -> dict[str, list[str]]:
    """Write the checkpoints of a graph that receives every talk; return the time of each message by thread."""
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import MessagesState, StateGraph

    graph = StateGraph(MessagesState)
    graph.add_node("a", lambda _: {})
    graph.add_edge("__start__", "a")
    graph.add_edge("a", "__end__")
    times: dict[str, list[str]] = {}
    with sqlite3.connect(path, check_same_thread=False) as connection:
        app = graph.compile(checkpointer=SqliteSaver(connection))
        for name, turns in TALKS.items():
            config: Any = {"configurable": {"thread_id": name}}
            for message in langchain_messages(turns):
                app.update_state(config, {"messages": [message]}, as_node="a")
            first: dict[str, str] = {}
            for state in reversed(list(app.get_state_history(config))):
                for message in state.values["messages"]:
                    first.setdefault(message.id, state.created_at or "")
            times[name] = list(first.values())
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    return times


WRITERS: dict[str, Callable[[list[Turn]], Any]] = {
    "openai.json": write_openai,
    "openai-dated.jsonl": write_openai_dated,
    "anthropic.json": write_anthropic,
    "responses.jsonl": write_responses,
    "responses-dated.jsonl": write_responses_dated,
    "langchain.json": write_langchain,
    "langchain-dumpd.json": write_dumpd,
    "pydantic-ai.json": write_pydantic_ai,
    "codex.jsonl": lambda turns: list(codex_lines(turns)),
}


def dump(path: Path, value: Any) -> None:
    lines = value if path.suffix == ".jsonl" else [value]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")


def main() -> None:
    for name, turns in TALKS.items():
        for form, write in WRITERS.items():
            dump(CORPUS / f"{name}.{form}", write(turns))
        dump(CORPUS / f"{name}.claude-code.jsonl", list(claude_code_lines(turns, f"{name}.claude-code")))
    agents = CORPUS / "loop.claude-code" / "subagents"
    for agent, name in (("a1", "chat"), ("a2", "call")):
        dump(agents / f"agent-{agent}.jsonl", list(claude_code_lines(TALKS[name], "loop.claude-code", agent)))
    for path, write_database in ((CORPUS / "agents.db", write_agents), (CORPUS / "langgraph.db", write_langgraph)):
        path.unlink(missing_ok=True)
        times = write_database(path)
        if times is not None:
            dump(path.with_suffix(".times.json"), times)


if __name__ == "__main__":
    main()
