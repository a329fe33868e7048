"""Context: the pages, the conversation and the views of one agent session, and `open`, which opens it."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import cached_property
from os import urandom
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict

from msgspec.structs import replace

from quire.conversation import Conversation, ImportReport, Item, Messages
from quire.core.plan import Plan
from quire.core.records import KEY
from quire.errors import Conflict, Hint, InvalidOperation, InvalidValue, short_repr
from quire.model.messages import Provider, ToolCall
from quire.model.pages import PageIndex, Permission, Segment, SegmentType
from quire.model.text import check_one_line
from quire.model.tokens import TokenCounter
from quire.storage.base import RESERVED, Durability, Storage, no_such_context
from quire.storage.urls import StoreLocation, close_storage, storage_at
from quire.system import ContextSystem, Entry, Problem
from quire.system.rules import check_bool
from quire.system.segments import add_segment
from quire.view.cost import Usage
from quire.view.explain import Stats, Why
from quire.view.options import CompressionConfig, RenderOptions
from quire.view.parts import FoldResult
from quire.view.preamble import new_key
from quire.view.renderer import ViewFacade
from quire.view.view import View

if TYPE_CHECKING:  # imported when first used: not every program needs them
    from quire.agent import AgentContext, Quota
    from quire.agent.tools import Tools
    from quire.conversation.turn import TurnState
    from quire.search.find import Hit
    from quire.search.vectors import Embedder
    from quire.view.fold.summary_worker import SummaryWorker
    from quire.view.sent import LastSent
    from quire.view.tail import TailPiece
    from quire.windows.windows import Windows

DEFAULT_SEGMENTS: tuple[Segment, ...] = (
    Segment(
        id="sys",
        name="System",
        description="The system prompt",
        type=SegmentType.SYSTEM,
        permission=Permission.READ_ONLY,
    ),
    Segment(id="mem", name="Memory", description="The agent's own notes", type=SegmentType.CUSTOM),
    Segment(id="usr", name="Conversation", description="The conversation", type=SegmentType.USER),
    Segment(id="win", name="Windows", description="Live windows", type=SegmentType.TOOL),
)


class Context:
    """One agent's context. `quire.open` returns it; close it, or use it in a `with` block.

    | attribute      | holds                                                                              |
    |----------------|------------------------------------------------------------------------------------|
    | `pages`        | every operation on pages and segments, without permission checks                   |
    | `conversation` | the messages and their edits; the most used operations are methods of this class too |
    | `agent`        | the operations of an agent, with permission checks                                 |
    | `tools`        | the operations of the agent as tools for a model                                   |
    | `windows`      | live windows of apps                                                               |
    """

    def __init__(
        self,
        pages: ContextSystem,
        *,
        budget: int | None = None,
        compression: CompressionConfig | None = None,
        preamble: str | None = None,
        owned_storage: Storage | None = None,
    ) -> None:
        self.pages = pages
        self._views = ViewFacade(pages._engine, pages.actor, compression, self._pieces, preamble)
        self.conversation = Conversation(pages._engine, pages.actor, self._views.answer)
        if budget is not None:
            self._views.budget = budget
        self._owned_storage = owned_storage

    def __repr__(self) -> str:
        return f"<Context {self.pages!r}, budget {self.budget:,}>"

    @property
    def budget(self) -> int:
        """The most tokens of a view, for all handles of this context. A new value is stored with the next write."""
        return self._views.budget

    @budget.setter
    def budget(self, budget: int) -> None:
        self._views.budget = budget

    @property
    def name(self) -> str:
        """The name of this context in its storage."""
        return self.pages.context

    @property
    def seq(self) -> int:
        """The seq of the last journal entry."""
        return self.pages.seq

    def find(self, /, query: str, limit: int = 10, **filters: Any) -> "list[Hit]":
        """Return the pages that match a query, best first, archived ones too. See `pages.find` for the filters."""
        return self.pages.find(query, limit, **filters)

    # Windows, agents and tools

    @cached_property
    def windows(self) -> "Windows":
        """Live windows of apps. Windows that an earlier run left open are shown again when their app is registered."""
        from quire.windows.windows import Windows

        return Windows(self.pages._engine, self.pages.actor)

    @cached_property
    def agent(self) -> "AgentContext":
        """The operations of the agent `agent`, with permission checks."""
        return self.as_agent()

    @cached_property
    def tools(self) -> "Tools":
        """The operations of `agent` as tools for a model."""
        return self.tools_of(self.agent)

    def as_agent(self, actor: str = "agent", *, manage: bool = False, quota: "Quota | None" = None) -> "AgentContext":
        """Return the operations of an agent, with permission checks. The journal records `actor` as its name.

        With `manage` it may add and remove segments and set their permissions. `quota` bounds what it may add.
        """
        from quire.agent import AgentContext

        return AgentContext(self.pages, actor, manage, quota=quota, views=self._views)

    def tools_of(self, agent: "AgentContext", *, beside: bool = False) -> "Tools":
        """Return the tools of an agent that `as_agent` returned.

        Use `beside=True` when the model's own conversation is not stored in this context (an MCP client, for example).
        Then `find` also returns the last user message, and the model that talks here is shown what this one writes.
        """
        from quire.agent.handlers import ToolContext
        from quire.agent.tools import Tools

        return Tools(ToolContext(agent, self.windows, beside=beside))

    def _pieces(self, options: RenderOptions) -> "Sequence[TailPiece]":
        """Return the windows for the tail of a view. None are loaded before `windows` is used for the first time."""
        used = "windows" in self.__dict__ or options.include_obsolete
        return self.windows._tail_parts(options) if used else ()

    # Messages

    def system(self, text: str, name: str | None = None) -> int:
        """Set the system prompt, or a further one with a `name`. Return its index. The same text changes nothing."""
        return self.conversation.system(text, name)

    def user(
        self,
        content: Any,
        *,
        id: str | None = None,  # noqa: A002 - the word the contract has
        at: datetime | None = None,
    ) -> int:
        """Add a user message: text, or a list of parts in any provider's shape. Return its message index.

        See `add` for `id` and `at`.
        """
        return self.conversation.user(content, id=id, at=at)

    def assistant(
        self,
        content: Any = None,
        tool_calls: Iterable[Any] | None = None,
        *,
        view: View | None = None,
        id: str | None = None,  # noqa: A002 - the word the contract has
        at: datetime | None = None,
    ) -> int:
        """Add an assistant message, with or without tool calls. Return its message index.

        See `add` for `view`, `id` and `at`.
        """
        return self.conversation.assistant(content, tool_calls, view=view, id=id, at=at)

    def tool_result(
        self,
        call_id: str,
        content: Any,
        *,
        id: str | None = None,  # noqa: A002 - the word the contract has
        at: datetime | None = None,
    ) -> int:
        """Add the result of a tool call; a late one is accepted too. Return its message index.

        See `add` for `id` and `at`.
        """
        return self.conversation.tool_result(call_id, content, id=id, at=at)

    def add(
        self,
        message: Any,
        *,
        view: View | None = None,
        id: str | None = None,  # noqa: A002 - the word the contract has
        at: datetime | None = None,
        provider: Provider | None = None,
    ) -> int:
        """Add a message, a list of them, or a response in any provider's shape. Return the index of the last one.

        A reply is stored with what was new at the end of the view that it answers, and with what its thinking is bound
        to. That is the last view of this handle if no message came since; give a `view` that another handle rendered.

        A message with an `id` is added once: if a message in the conversation has this id, its index is returned,
        whatever the new text. Of several messages, the first has the id, and the others `id.2`, `id.3` and so on.

        `at` is the time of messages that have none of their own; without it, they have the time of their arrival.

        A dict of an unknown shape is refused. With a `provider`, dicts are read in the form of this provider, and items
        of a new type are kept as they are; SDK objects always are.
        """
        return self.conversation.add(message, view=view, id=id, at=at, provider=provider)

    def messages(self, all: bool = False) -> Messages:  # noqa: A002 - the word the contract has
        """Return the messages in their current order; with `all` every message by index, deleted ones too."""
        return self.conversation.messages(all)

    def items(self, active: bool = False) -> Iterator[Item]:
        """Yield prompts, exchanges and summaries by seq. With `active`, leave out those that an edit removed."""
        return self.conversation.items(active)

    def import_messages(
        self,
        messages: Iterable[Any],
        *,
        progress: Callable[[ImportReport], None] | None = None,
        provider: Provider | None = None,
    ) -> ImportReport:
        """Add a whole history, even a damaged one. Return a report of what was added and what was wrong.

        A message keeps the time that it has in the source: `Message.at`, or a key `at`, `timestamp`, `created_at`,
        `created` or `time` of a dict. See `add` for `provider`.
        """
        return self.conversation.import_messages(messages, progress=progress, provider=provider)

    def pending_calls(self) -> list[ToolCall]:
        """Return the calls of the newest exchange that have no result yet."""
        return self.conversation.pending_calls()

    def close_calls(self) -> list[ToolCall]:
        """Stop waiting for results of the newest exchange. Return the calls that had none."""
        return self.conversation.close_calls()

    @contextmanager
    def turn(self, key: str | None = None, *, wait: float = 30.0, keep: bool = False) -> Iterator[Self]:
        """Run a block as a turn: only one worker at a time, in any process, is in a turn of this context.

        Others wait up to `wait` seconds for it, then raise `Busy`. Entering refreshes. If the block raises, all entries
        that this handle made in it are taken back in one commit that can be undone; entries of other writers stay.
        With `keep` they are kept. If the worker dies, the same happens when its lease expires, after 30 seconds. With a
        `key`, the n-th message that is added has the id `key#n`, so a repeated turn adds nothing twice; `turn_state`
        says how far the turn with this key came. A turn in a turn joins it.
        """
        from quire.conversation.turn import run_turn  # late: not every program has turns

        with run_turn(self.pages._engine, self.pages.actor, key, wait, keep):
            yield self

    @property
    def turn_state(self) -> "TurnState | None":
        """How far the turn with this key came before: "new", "unfinished" or "finished"; None outside a turn."""
        turn = self.pages._engine.turn
        return None if turn is None else turn.state

    def temporary(self) -> AbstractContextManager[None]:
        """Return a block that takes its messages and edits back when it ends, also when it raises."""
        return self.conversation.temporary()

    # The view

    def render(self, /, options: RenderOptions | None = None, **changes: Any) -> View:
        """Return the view for the model: within the budget, legal for its provider, the same bytes for the same state.

        Give `RenderOptions`, or its fields by name. At the budget of the context, this may commit one fold first. With
        `preview` or another `max_tokens` it writes nothing. Raise `IrreducibleFloor` if the pages that must be shown
        do not fit.
        """
        return self._views.render(options, changes)

    def why(self, index: PageIndex, view: View | None = None) -> Why:
        """Explain how a page is shown, or why it is not, and name the call that would show it.

        The answer is about `view`. Without one, it is about the last view at the budget of the context, drawn again if
        the context has changed since.
        """
        return self._views.why(index, view)

    def last_sent(self) -> "LastSent | None":
        """Return the last view that a model answered, as it was sent: with its windows, recalled pages and tools.

        Every process can read it, because it is stored with the reply. None if no reply to a view was added yet.
        """
        from quire.view.sent import draw_sent, newest_sent  # late: for inspection

        sent = self.pages._engine.read(newest_sent)
        if sent is None:
            return None
        return draw_sent(sent, lambda: Context(self.pages.as_of(sent.entry), preamble=self._views.preamble))

    def stats(self) -> Stats:
        """Return the number of items, their tokens, and the same for each segment."""
        return self._views.stats()

    def report_usage(
        self, usage: object, model: str | None = None, *, tools: int = 0, view: View | None = None
    ) -> Usage:
        """Learn from the usage of a response, or the whole response, how many tokens its model bills per counted token.

        The billed tokens are compared with the tokens of `view` (default: the last view at the budget of the context)
        plus the tokens of the `tools` that were sent with it (`count_tools`). `reserve` is not part of this. The
        context keeps one factor for each model; `stats()` returns it and `render(model=…)` applies it. Raise
        `InvalidValue` if `usage` is not a usage report.
        """
        return self._views.report_usage(usage, model, tools, view)

    def dump(self) -> str:
        """Return one line for every item: whether it is active, its seq, its type and the start of its text."""
        return self._views.dump()

    def on_fold(self, listener: Callable[[FoldResult], None]) -> Callable[[], None]:
        """Call a function after every fold. Return a function that ends this."""
        return self._views.on_fold(listener)

    @property
    def summarising(self) -> "SummaryWorker | None":
        """The state of the summariser of `CompressionConfig`: its errors, and `wait`. None without a summariser."""
        return self._views.summaries

    # History

    def history(
        self,
        after: int = 0,
        *,
        actor: str | None = None,
        operation: str | None = None,
        page: PageIndex | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Entry]:
        """Yield the journal entries above `after` and below `before` that match every filter, oldest first.

        With `reverse` the newest entry comes first.
        """
        return self.pages.history(
            after,
            actor=actor,
            operation=operation,
            page=page,
            since=since,
            until=until,
            before=before,
            reverse=reverse,
        )

    def audit(self, /, path: str | os.PathLike[str], **filters: Any) -> int:
        """Write the journal to a file as JSON Lines. Return the number of entries. See `history` for the filters."""
        return self.pages.audit(path, **filters)

    def undo(self, entry: Entry | int) -> int:
        """Undo one operation and keep later changes. Return the seq of the new entry."""
        return self.pages.undo(entry)

    def checkpoint(self, name: str) -> int:
        """Name the current state, so that `rollback(name)` can return to it. Return its seq."""
        return self.pages.checkpoint(name)

    def rollback(self, to: str | int | Entry) -> int:
        """Return the whole context to a checkpoint or an entry, in one commit that can be undone. Return its seq."""
        return self.pages.rollback(to)

    def fork(self, new_name: str, at: str | int | Entry | None = None, *, check: bool = False) -> "Context":
        """Copy this context in its current state, or in the state of a checkpoint or an entry, and open the copy.

        The bodies of pages are shared in the storage. Later changes and deletion of one do not affect the other. The
        copy uses the connection of this context. With `check`, all records are read first: `Corrupt` names a damaged
        one, and nothing is created.
        """
        self.pages.fork(new_name, at, check=check)
        pages = ContextSystem(actor=self.pages.actor, _engine=self.pages._engine.open_context(new_name))
        return self._copy(pages, self._views.config)

    def as_of(self, to: str | int | Entry) -> "Context":
        """Return this context as a rollback to a checkpoint or an entry would leave it. Nothing is written.

        Changes to the returned context stay in memory.
        """
        config = replace(self._views.config, cache_seconds=None)  # the age of that state must not cause a fold
        past = self._copy(self.pages.as_of(to), config)
        past.budget = self.budget
        return past

    def _copy(self, pages: ContextSystem, config: CompressionConfig) -> "Context":
        copy = Context(pages, compression=config, preamble=self._views.preamble)
        if "windows" in self.__dict__:
            self.windows._share(copy.windows)
        return copy

    # State and storage

    def refresh(self) -> bool:
        """Read what other writers committed. Return whether there was anything.

        Raise `NoSuchContext` if the context was deleted.
        """
        return self.pages.refresh()

    def check(self) -> list[Problem]:
        """Return every problem of this context; an empty list if there is none."""
        return self.pages.check()

    def close(self) -> None:
        """Release the storage if this context opened it. Committed changes are safe without closing.

        If a summariser is still asked for summaries, the storage is closed when they are stored. This call does not
        wait for them.
        """
        if "windows" in self.__dict__:
            self.windows._stop_threads()
        if self._owned_storage is not None:
            close_storage(self._owned_storage)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open(  # noqa: A001 - quire.open is the name users expect
    where: StoreLocation,
    context: str = "default",
    *,
    budget: int | None = None,
    durability: Durability = "normal",
    counter: TokenCounter | None = None,
    compression: CompressionConfig | None = None,
    segments: Sequence[Segment] | None = None,
    key: str | None = None,
    preamble: str | None = None,
    embedder: "Embedder | None" = None,
    redact: Callable[[str], str] | None = None,
    create: bool = True,
) -> Context:
    """Open a context; create it with its segments if it is new.

    `where` is a URL (`memory:`, `file:DIR`, `sqlite:FILE`, `postgresql://…`, `s3://bucket/prefix`), a path (SQLite), a
    storage object, or an open connection (`sqlite3`, `apsw`, `psycopg`, a pool of `psycopg_pool`); the caller closes
    both. With `create=False` nothing is created: raise `NoSuchContext` if there is
    no such context, `StorageFailure` if there is no such store.

    | option        | meaning                                                                                        |
    |---------------|------------------------------------------------------------------------------------------------|
    | `budget`      | the most tokens of a view; stored with the next write. Default: the stored one, 128,000 if new |
    | `counter`     | counts tokens; default: the vocabulary `o200k_base`                                            |
    | `compression` | when the conversation folds, and how far                                                       |
    | `segments`    | the segments of a new context; default: `sys`, `mem`, `usr`, `win`                             |
    | `key`         | the word by which a model recognises lines that quire wrote; default: random                   |
    | `preamble`    | explains the view to the model; `{key}` in it is replaced by the key; "" leaves it out         |
    | `embedder`    | makes vectors of texts, so that pages are also found by meaning (`quire.embedders`)            |
    | `redact`      | removes secrets from every text before it is stored, such as `quire.redact_secrets`            |
    """
    setup = Setup(budget, counter, compression, segments, key, preamble, embedder, redact)
    storage, owns = storage_at(where, durability=durability, create=check_bool(create, "create"))
    try:
        return open_in(storage, context, setup, storage if owns else None, create=create)
    except BaseException:
        if owns:
            storage.close()
        raise


class PlainOptions(TypedDict, total=False):
    """The options of `open`, by name, without `key`."""

    budget: int | None
    counter: TokenCounter | None
    compression: CompressionConfig | None
    segments: Sequence[Segment] | None
    preamble: str | None
    embedder: "Embedder | None"
    redact: Callable[[str], str] | None


class Options(PlainOptions, total=False):
    """The options of `open`, by name."""

    key: str | None


class Setup(NamedTuple):
    """`Options` with their defaults."""

    budget: int | None = None
    counter: TokenCounter | None = None
    compression: CompressionConfig | None = None
    segments: Sequence[Segment] | None = None
    key: str | None = None
    preamble: str | None = None
    embedder: "Embedder | None" = None
    redact: Callable[[str], str] | None = None


def setup_of(options: Options) -> Setup:
    """Return the options with defaults for the others. Raise `TypeError` for an unknown option, as `open` does."""
    unknown = [name for name in options if name not in Setup._fields]
    if unknown:
        raise TypeError(f"Unknown option {short_repr(min(unknown))}; the options are {', '.join(Setup._fields)}.")
    return Setup(**options)


def open_in(
    storage: Storage,
    context: str,
    setup: Setup,
    owned_storage: Storage | None = None,
    *,
    create: bool = True,
    must_be_new: bool = False,
) -> Context:
    """Open a context in an open storage; create it if it is new.

    Raise `NoSuchContext` if it is new and `create` is false, `InvalidOperation` if it exists and `must_be_new` is true.
    """
    if isinstance(context, str) and context.startswith(RESERVED):
        raise InvalidValue(f"Context name {short_repr(context)} is not allowed: {RESERVED!r} names leases.")
    key = new_key(urandom(8)) if setup.key is None else check_one_line(setup.key, "key", 32, empty=False)
    system = ContextSystem(storage, context, counter=setup.counter, embedder=setup.embedder, redact=setup.redact)
    opened = Context(
        system, budget=setup.budget, compression=setup.compression, preamble=setup.preamble, owned_storage=owned_storage
    )
    if create and opened.seq == 0:
        try:
            segments = DEFAULT_SEGMENTS if setup.segments is None else setup.segments
            system._engine.run(system.actor, "create", _create, segments, key)
        except Conflict:  # another writer created it first: use that one
            if must_be_new:
                raise _already_exists(context) from None
            opened.refresh()
            if opened.seq == 0:  # it was deleted again
                raise
    elif opened.seq == 0:
        raise no_such_context(storage, context)
    elif must_be_new:
        raise _already_exists(context)
    return opened


def _already_exists(context: str) -> InvalidOperation:
    return InvalidOperation(f"Context {context!r} exists already.", Hint("open", arguments=repr(context)))


def _create(plan: Plan, segments: Sequence[Segment], key: str) -> None:
    if not isinstance(segments, list | tuple):
        raise InvalidValue(f"is {short_repr(segments)}; a list of quire.Segment is needed.", argument="segments")
    for segment in segments:
        add_segment(plan, segment)
    plan.put_note(KEY, name=key)
