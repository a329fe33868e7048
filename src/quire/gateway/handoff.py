"""The handoff of a session: its current view as a session that the client resumes without the gateway."""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

from quire.errors import InvalidValue, NoSuchContext, short_repr
from quire.formats.writing import format_session
from quire.gateway.layout import PREAMBLE
from quire.library import Library
from quire.model.messages import Message
from quire.server.gateway_ledger import SESSIONS
from quire.view.preamble import context_key

Client = Literal["claude", "codex"]
_LISTED = 10


class Handoff(NamedTuple):
    """A written session: its file, its id, and the command that resumes it."""

    path: Path
    session_id: str
    command: str


def find_session(library: Library, session: str) -> str:
    """Return the context of a session by its name, or the start or the end of its id. Raise `NoSuchContext`."""
    ids = {name: name.rpartition("/")[2] for name in library.list(prefix=SESSIONS)}
    found = [name for name in ids if session in (name, ids[name])]
    found = found or [name for name in ids if ids[name].startswith(session) or name.endswith(session)]
    if len(found) == 1 and session:
        return found[0]
    others = [ids[name] for name in found or ids]
    listed = ", ".join(others[:_LISTED]) or "none"
    more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
    raise NoSuchContext(f"{short_repr(session)} matches {len(found)} sessions, not one. Sessions: {listed}{more}.")


def write_handoff(
    library: Library,
    name: str,
    *,
    client: Client | None = None,
    folder: Path | None = None,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Handoff:
    """Write the current view of a session where its client looks for sessions, or to `file`.

    `folder` is the working folder of the session; a client resumes a session only there. Raise `InvalidValue` if the
    file exists.
    """
    client = client or ("claude" if SESSIONS in name and "/anthropic/" in name else "codex")
    folder = (folder or Path.cwd()).resolve()
    session_id = str(uuid4())
    path = file or _place(client, folder, session_id, environment)
    if path.exists():
        raise InvalidValue(f"{str(path)!r} exists; it is not overwritten.", argument="file")
    with library.open(name, create=False, preamble="") as context:
        view = context.render(preview=True)
        key = context.pages._engine.read(context_key)
        note = [Message(role="user", content=PREAMBLE.replace("{key}", key))]
        messages = [*(note if any(part.kind == "folded" for part in view.parts) else ()), *view.messages]
        dated = list(context.conversation.date_messages(messages))
    form: Literal["claude-code", "codex"] = "claude-code" if client == "claude" else "codex"
    data = format_session(dated, form, session_id=session_id, folder=str(folder))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    resume = f"claude --resume {session_id}" if client == "claude" else f"codex resume {session_id}"
    return Handoff(path, session_id, resume)


def _place(client: Client, folder: Path, session_id: str, environment: Mapping[str, str]) -> Path:
    """Return the file in which a client looks for a session."""
    home = Path(environment.get("HOME") or Path.home())
    if client == "claude":
        root = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
        return root / "projects" / re.sub(r"[^A-Za-z0-9]", "-", str(folder)) / f"{session_id}.jsonl"
    now = datetime.now(UTC)
    root = Path(environment.get("CODEX_HOME") or home / ".codex")
    return root / "sessions" / now.strftime("%Y/%m/%d") / f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl"
