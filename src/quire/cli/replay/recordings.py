"""Recorded conversations from files and stores, and the number of their facts that a request or search reaches.

Each is imported into a context first, as quire would store it. A call id that occurs twice is made distinct, as in a
view: the replay compares how requests are built, not how they were recorded.
"""

import os
import re
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

import quire
from quire import Context, DetailPage, Message, ToolCall
from quire.cli.command import open_context
from quire.errors import InvalidValue
from quire.formats.files import is_store, read_log
from quire.formats.log import LogFile, LoggedConversation
from quire.providers.usage import read_usage
from quire.storage.urls import mask_address

_HITS = 5
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:-]{2,}[A-Za-z0-9]")
"""Four or more characters; one with a digit is an identifier, an amount, a date or a time."""

_WORD = re.compile("[A-Za-z0-9_]")
_DAY = 86_400


class Reach(NamedTuple):
    """The number of facts in the messages that are sent, of further facts that a search finds, and of all facts."""

    shown: int = 0
    found: int = 0
    total: int = 0

    def __add__(self, other: "Reach") -> "Reach":  # type: ignore[override]
        return Reach(*(one + more for one, more in zip(self, other, strict=True)))


def extract_facts(messages: Iterable[Message]) -> list[str]:
    """Return the distinct facts of messages: identifiers, amounts, dates, times."""
    tokens = (match.group() for text in message_texts(messages) for match in _TOKEN.finditer(text))
    return list(dict.fromkeys(token for token in tokens if any(map(str.isdigit, token))))


def measure_reach(
    sought: Sequence[tuple[str, str]], messages: Iterable[Message], context: Context | None = None
) -> Reach:
    """Count the (query, answer) pairs with the answer in the messages, or on a page that the query finds."""
    text = "\n".join(message_texts(messages))
    missing = [(query, answer) for query, answer in sought if not contains_fact(text, answer)]
    found = sum(_finds(context, query, answer) for query, answer in missing) if context is not None else 0
    return Reach(len(sought) - len(missing), found, len(sought))


def contains_fact(text: str, fact: str) -> bool:
    """Return whether a text contains a fact that is not part of a longer number or name."""
    place = text.find(fact)
    while place >= 0:
        end = place + len(fact)
        if not _WORD.match(text, place - 1, place) and not _WORD.match(text, end):
            return True
        place = text.find(fact, place + 1)
    return False


def message_texts(messages: Iterable[Message]) -> Iterator[str]:
    """Yield the texts of messages and the arguments of their calls."""
    for message in messages:
        yield message.text
        for call in message.tool_calls:
            yield call.arguments


def _finds(context: Context, query: str, answer: str) -> bool:
    """Return whether one of the first hits of a query contains the answer."""
    pages = context.pages
    for hit in pages.find(query, _HITS):
        body = pages.detail(hit.index) if isinstance(pages.get_page(hit.index), DetailPage) else ""
        if contains_fact(f"{hit.name}\n{hit.description}\n{body}", answer):
            return True
    return False


class Recording(NamedTuple):
    """A conversation: its name, its prompt if it has one, and the other messages."""

    name: str
    prompt: Message | None
    messages: Sequence[Message]

    @property
    def calls(self) -> int:
        """The number of model calls."""
        return sum(message.role == "assistant" for message in self.messages)


class RecordedUsage(NamedTuple):
    """The usage that the records of a client contain. `models` counts the calls of each model that is named."""

    calls: int = 0
    tokens: int = 0
    cached: int = 0
    written: int = 0
    models: Counter[str] = Counter()  # noqa: RUF012 - a sum makes a new one

    def __add__(self, other: "RecordedUsage") -> "RecordedUsage":  # type: ignore[override]
        pairs: Iterable[tuple[Any, Any]] = zip(self, other, strict=True)
        return RecordedUsage(*(one + more for one, more in pairs))

    @property
    def model(self) -> str | None:
        """The model with most calls."""
        return next((name for name, _ in self.models.most_common(1)), None)


class RecordingSet(NamedTuple):
    """The conversations that have a model call, the number of those without, and of files without a conversation."""

    conversations: Sequence[Recording]
    silent: int
    unread: int = 0
    usage: RecordedUsage = RecordedUsage()

    @property
    def messages(self) -> int:
        """The number of messages, without prompts."""
        return sum(len(recording.messages) for recording in self.conversations)

    @property
    def calls(self) -> int:
        """The number of model calls."""
        return sum(recording.calls for recording in self.conversations)


def find_session_folders(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the folders where Claude Code and Codex store the sessions of this user, if they exist."""
    home = Path(environment.get("HOME") or Path.home())
    claude, codex = environment.get("CLAUDE_CONFIG_DIR"), environment.get("CODEX_HOME")
    places = (Path(claude or home / ".claude") / "projects", Path(codex or home / ".codex") / "sessions")
    return [place for place in places if place.is_dir()]


def list_session_files(folder: Path, days: float | None = None) -> list[Path]:
    """Return the JSON Lines files in a folder and below it; with `days`, those that changed in the last days."""
    since = 0.0 if days is None else time.time() - days * _DAY
    files = (path for path in folder.rglob("*.jsonl*") if path.suffix in (".jsonl", ".gz"))
    return sorted(path for path in files if path.is_file() and path.stat().st_mtime >= since)


def read_recordings(
    sources: Sequence[str],
    number: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    *,
    context: str | None = None,
    days: float | None = None,
) -> RecordingSet:
    """Read all conversations of files and folders, or the one with a number, counted from 1 over all files.

    For a store, it is the conversation of the context that is named, or of the default one. For a folder, these are the
    session files in it; those without a conversation are counted, and `days` leaves out files without a change since
    then. `progress` is called with the number of conversations read. Raises `InvalidValue` if a file cannot be read,
    the number is out of range, or no conversation has a model call.
    """
    if context is not None and not any(map(is_store, sources)):
        fact = f"is {context!r}, but {', '.join(map(repr, sources))} is not a store."
        raise InvalidValue(fact, argument="context")
    recordings: list[Recording] = []
    usage, unread, count = RecordedUsage(), 0, 0
    for log in (log for source in sources for log in _read_source(source, context, days)):
        unread += log is None
        for conversation in log.conversations if log is not None else ():
            count += 1
            if number in (None, count):
                recordings.append(_record(conversation))
                usage += _sum_usage(conversation.messages)
                progress(len(recordings))
    names = ", ".join("standard input" if source == "-" else mask_address(source) for source in sources)
    if number is not None:
        LogFile(names, [LoggedConversation("", [])] * count, []).select(number)  # refuses a number out of range
    with_calls = [recording for recording in recordings if recording.calls]
    if not with_calls:
        raise InvalidValue(f"{names!r} holds no message of an assistant, so there is no model call to replay.")
    return RecordingSet(with_calls, len(recordings) - len(with_calls), unread, usage)


def _read_source(source: str, context: str | None, days: float | None) -> Iterator[LogFile | None]:
    """Yield the log of a file or store, or of each session file in a folder: None for one without a conversation."""
    if is_store(source):
        with open_context(Namespace(where=source, context=context)) as opened:
            conversation = LoggedConversation(opened.name, list(opened.messages()))
        yield LogFile(mask_address(source), [conversation], [])
    elif not Path(source).is_dir():
        yield read_log(source)
    else:
        files = list_session_files(Path(source), days)
        if not files:
            when = "" if days is None else f" that changed in the last {days:g} days"
            raise InvalidValue(f"{source!r} holds no session files (*.jsonl){when}.")
        for file in files:
            try:
                yield read_log(file, subagents=False)  # their files are in the folder too
            except InvalidValue:
                yield None


def _sum_usage(messages: Iterable[object]) -> RecordedUsage:
    """Add up the usage in the messages of a session of Claude Code."""
    total = RecordedUsage()
    for message in messages:
        usage = message.get("usage") if isinstance(message, dict) else None
        if not isinstance(usage, dict):
            continue
        try:
            billed, cached, model = read_usage(message)
        except InvalidValue:  # such as a message of the client itself, with zero tokens
            continue
        written = usage.get("output_tokens")
        named = Counter([model] if model else [])
        total += RecordedUsage(1, billed, cached, written if isinstance(written, int) else 0, named)
    return total


def join_recordings(recordings: RecordingSet) -> RecordingSet:
    """Return all conversations as one, in their order, under the prompt of the first."""
    first, *_ = recordings.conversations
    messages = [message for one in recordings.conversations for message in one.messages if message.role != "system"]
    joined = Recording(first.name, first.prompt, make_call_ids_distinct(messages))
    return recordings._replace(conversations=[joined])


def _record(conversation: LoggedConversation) -> Recording:
    with quire.open("memory:") as context:
        context.import_messages(conversation.messages)
        messages = list(context.messages())
    has_prompt = bool(messages) and messages[0].role == "system"
    others = make_call_ids_distinct(messages[has_prompt:])
    return Recording(conversation.name, messages[0] if has_prompt else None, others)


def make_call_ids_distinct(messages: Sequence[Message]) -> Sequence[Message]:
    """Give a new id to every call with an id that was used before, and to its result.

    Some models number their calls from the start in every response, and the compared strategies find a call by its id.
    """
    ids = [call.id for message in messages for call in message.tool_calls]
    if len(set(ids)) == len(ids):
        return messages
    times: dict[str, int] = {}
    renamed: dict[str, str] = {}
    changed: list[Message] = []
    for message in messages:
        if message.tool_calls:
            calls = tuple(_with_new_id(call, times) for call in message.tool_calls)
            renamed |= {old.id: new.id for old, new in zip(message.tool_calls, calls, strict=True)}
            message = message if calls == message.tool_calls else replace(message, tool_calls=calls, raw=None)
        elif message.role == "tool":
            known = renamed.get(message.tool_call_id or "", message.tool_call_id)
            message = message if known == message.tool_call_id else replace(message, tool_call_id=known, raw=None)
        changed.append(message)
    return changed


def _with_new_id(call: ToolCall, times: dict[str, int]) -> ToolCall:
    """Return the call with an id that no call before it has. `times` counts the uses of each id."""
    fresh = call.id
    while fresh in times:
        times[call.id] += 1
        fresh = f"{call.id}_{times[call.id]}"
    times[fresh] = 1
    return call if fresh == call.id else replace(call, id=fresh)
