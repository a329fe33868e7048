"""Context: the pages, the conversation and the views of one agent session. `open` opens it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import urandom
from typing import TYPE_CHECKING, Any, Self, TypedDict, cast

from msgspec.structs import replace

from quire.conversation import Conversation
from quire.conversation import turn as turns
from quire.conversation.message_handle import MessageHandle
from quire.core.plan import Plan
from quire.core.records import KEY
from quire.errors import Conflict, Hint, InvalidOperation, InvalidValue, check_names, names_options, short_repr
from quire.model.messages import Message
from quire.model.pages import PageIndex, Permission, Segment, SegmentType
from quire.model.text import check_one_line
from quire.model.tokens import TokenCounter
from quire.storage.base import RESERVED, Durability, no_such_context
from quire.storage.contract import Storage
from quire.storage.memory import MemoryStorage
from quire.storage.urls import StoreLocation, is_new_path, release, storage_at
from quire.system import ContextSystem, Entry
from quire.system.handle import ContextHandle
from quire.system.rules import check_bool
from quire.system.segments import add_segment
from quire.system.tree import write_document, write_page
from quire.view.handle import ViewHandle
from quire.view.options import CompressionConfig, RenderOptions
from quire.view.preamble import new_key

if TYPE_CHECKING:  # imported when first used: not every program needs them
    from quire.agent import AgentContext, Quota
    from quire.agent.tools import Tools
    from quire.search.vectors import Embedder
    from quire.view.sent import LastSent
    from quire.view.tail import TailPiece
    from quire.windows.windows import Windows


@names_options
class Context(ViewHandle, MessageHandle, ContextHandle):
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
        super().__init__(pages._engine, pages.actor, compression, preamble)
        self._answer = self._record_answer
        self.pages = pages
        self.conversation = Conversation(pages._engine, pages.actor, self._answer)
        if budget is not None:
            self.budget = budget
        self._owned_storage = owned_storage

    def __repr__(self) -> str:
        return f"<Context {self.pages!r}, budget {self.budget:,}>"

    @property
    def name(self) -> str:
        """The name of this context in its storage."""
        return self.pages.context

    # Pages

    def write(self, name: str, text: str, folder: PageIndex = "mem", summary: str = "") -> PageIndex:
        """Write a page by name: replace the text of the page of this name in a folder, or add one. Return its index.

        `folder` is a page index or the id of a segment. The same text and summary again change nothing. The names in
        the folder are compared one by one; use `pages.create_detail_page` for thousands of pages in one folder.
        """
        return self._engine.run(self.actor, "write", write_page, name, text, folder, summary)

    def document(self, name: str, text: str, pinned: bool = False, *, summary: str = "") -> PageIndex:
        """Write a document that the model reads and cannot change. Return its index.

        It is a page of the READ_ONLY segment `docs`, which the first document creates. The same name again replaces the
        text. A `pinned` document is always shown in full.
        """
        check_bool(pinned, "pinned")
        return self._engine.run(self.actor, "document", write_document, name, text, summary, pinned=pinned)

    # Windows, agents and tools

    @cached_property
    def windows(self) -> "Windows":
        """Live windows of apps. Windows that an earlier run left open are shown again when their app is registered."""
        from quire.windows.windows import Windows

        return Windows(self._engine, self.actor)

    @cached_property
    def agent(self) -> "AgentContext":
        """The operations of the agent `agent`, with permission checks."""
        return self.as_agent()

    @cached_property
    def tools(self) -> "Tools":
        """The operations of `agent` as tools for a model."""
        return self.tools_of(self.agent)

    def as_agent(
        self,
        actor: str = "agent",
        *,
        manage: bool = False,
        quota: "Quota | None" = None,
        remove_user_messages: bool = False,
    ) -> "AgentContext":
        """Return the operations of an agent, with permission checks. The journal records `actor` as its name.

        With `manage` it may add and remove segments and set their permissions. `quota` bounds what it may add. With
        `remove_user_messages` it may take messages of the user out of the conversation.
        """
        from quire.agent import AgentContext

        return AgentContext(
            self.pages, actor, manage, quota=quota, views=self, remove_user_messages=remove_user_messages
        )

    def tools_of(self, agent: "AgentContext", *, beside: bool = False) -> "Tools":
        """Return the tools of an agent that `as_agent` returned.

        Use `beside=True` when the model's own conversation is not stored in this context (an MCP client, for example).
        Then `find` also returns the last user message, and the view of this context shows what the model writes.
        """
        from quire.agent.handlers import ToolContext
        from quire.agent.tools import Tools

        return Tools(ToolContext(agent, self.windows, beside=beside))

    def _pieces(self, options: RenderOptions) -> "Sequence[TailPiece]":
        """Return the windows for the tail of a view.

        Windows are not loaded before the program uses `windows` or the options ask for obsolete windows.
        """
        used = "windows" in self.__dict__ or options.include_obsolete
        return self.windows._tail_parts(options) if used else ()

    # Turns

    @contextmanager
    def turn(self, key: str | None = None, *, wait: float = 30.0, keep: bool = False) -> Iterator[Self]:
        """Run a block as a turn: only one worker at a time, in any process, is in a turn of this context.

        Other workers wait up to `wait` seconds for the turn, then raise `Busy`. At the start of the block, the context
        is refreshed. If the block raises, all entries that this handle made in it are taken back in one commit that can
        be undone; entries of other writers stay. With `keep`, the entries of this handle stay too. If the worker dies,
        the same happens when its lease expires, after 25 seconds. With a `key`, the n-th message that is added (not by
        `import_messages`) has the id `key#n`, so a repeated turn adds nothing twice; `turn_state` says how far an
        earlier turn with this key came. A turn inside a turn of the same handle is part of the outer turn.
        """
        with turns.run_turn(self._engine, self.actor, key, wait, keep):
            yield self

    @property
    def turn_state(self) -> turns.TurnState | None:
        """How far an earlier turn with this key came: "new", "unfinished" or "finished"; None outside a turn."""
        active = self._engine.turn
        return None if active is None else active.state

    def last_sent(self) -> "LastSent | None":
        """Return the last view that a model answered, as it was sent: with its windows, recalled pages and tools.

        Every process can read it, because it is stored with the reply. None if no reply to a view was added yet.
        """
        from quire.view.sent import draw_sent, newest_sent  # late: for inspection

        sent = self._engine.read(newest_sent)
        if sent is None:
            return None
        return draw_sent(sent, lambda: Context(self.pages.as_of(sent.entry), preamble=self._preamble))

    # History

    def rollback(self, to: str | int | Entry | None = None, *, before: Message | int | None = None) -> int:
        """Return the whole context to a checkpoint or an entry, in one commit that can be undone. Return its seq.

        With `before`, return to the state before a message was added. Raise `InvalidOperation` if an earlier message
        was added in the same entry, as by an import.
        """
        if (to is None) == (before is None):
            raise InvalidValue("Give a checkpoint or an entry, or `before` with a message.")
        if before is not None:
            to = self.conversation.entry_before(before)
        return super().rollback(cast("str | int | Entry", to))

    def fork(self, new_name: str, at: str | int | Entry | None = None, *, check: bool = False) -> "Context":
        """Copy this context in its current state, or in the state of a checkpoint or an entry, and open the copy.

        The bodies of pages are shared in the storage. Later changes and deletion of one do not affect the other. The
        copy uses the connection of this context. With `check`, all records are read first: `Corrupt` names a damaged
        one, and nothing is created.
        """
        self.pages.fork(new_name, at, check=check)
        return self._copy(ContextSystem(actor=self.actor, _engine=self._engine.open_context(new_name)), self._config)

    def as_of(self, to: str | int | Entry) -> "Context":
        """Return this context as a rollback to a checkpoint or an entry would leave it. Nothing is written.

        Changes to the returned context stay in memory.
        """
        config = replace(self._config, cache_seconds=None)  # the age of that state must not cause a fold
        past = self._copy(self.pages.as_of(to), config)
        past.budget = self.budget
        return past

    def _copy(self, pages: ContextSystem, config: CompressionConfig) -> "Context":
        copy = Context(pages, compression=config, preamble=self._preamble)
        if "windows" in self.__dict__:
            self.windows._share(copy.windows)
        return copy

    def close(self) -> None:
        """Release the storage if this context opened it. Committed changes are safe without closing.

        If a summariser is still working, the storage is closed after it. This call does not wait.
        """
        if "windows" in self.__dict__:
            self.windows._stop_threads()
        if self._owned_storage is not None:
            release(self._owned_storage)
            self._owned_storage = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


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


@names_options
def open(
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
    storage object, or an open connection (`sqlite3`, `apsw`, `psycopg`, a pool of `psycopg_pool`). The caller closes a
    storage object or a connection. With `create=False` nothing is created: raise `NoSuchContext` if there is no such
    context, `StorageFailure` if there is no such store.

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
    options = Options(budget=budget, counter=counter, compression=compression, segments=segments, key=key)
    options |= {"preamble": preamble, "embedder": embedder, "redact": redact}
    if check_bool(create, "create") and is_new_path(where):  # a wrong option must not leave an empty store
        open_in(MemoryStorage(), context, options).close()
    storage, owns = storage_at(where, durability=durability, create=create)
    try:
        return open_in(storage, context, options, storage if owns else None, create=create)
    except BaseException:
        if owns:
            storage.close()
        raise


def check_open_options(options: Options) -> Options:
    """Return the options. Raise `UnknownOption` for one that `open` does not have."""
    check_names(options, Options.__annotations__, "open")
    return options


def open_in(
    storage: Storage,
    context: str,
    options: Options,
    owned_storage: Storage | None = None,
    *,
    create: bool = True,
    must_be_new: bool = False,
) -> Context:
    """Open a context in an open storage; create it if it is new.

    Raise `NoSuchContext` if it is new and `create` is false, `InvalidOperation` if it exists and `must_be_new` is true.
    """
    check_open_options(options)
    if isinstance(context, str) and context.startswith(RESERVED):
        raise InvalidValue(f"Context name {short_repr(context)} is not allowed: the prefix {RESERVED!r} is reserved.")
    get: Any = options.get
    key = new_key(urandom(8)) if get("key") is None else check_one_line(get("key"), "key", 32, empty=False)
    pages = ContextSystem(storage, context, counter=get("counter"), embedder=get("embedder"), redact=get("redact"))
    shown = {field: get(field) for field in ("budget", "compression", "preamble")}
    opened = Context(pages, owned_storage=owned_storage, **shown)
    exists = InvalidOperation(f"Context {context!r} exists already.", Hint("open", arguments=repr(context)))
    if opened.seq == 0 and not create:
        raise no_such_context(storage, context)
    if opened.seq != 0 and must_be_new:
        raise exists
    if opened.seq == 0:
        try:
            pages._engine.run(pages.actor, "create", _create, get("segments"), key)
        except Conflict:  # another writer created it first: use that one
            if must_be_new:
                raise exists from None
            opened.refresh()
            if opened.seq == 0:  # it was deleted again
                raise
    return opened


def _create(plan: Plan, segments: Sequence[Segment] | None, key: str) -> None:
    segments = DEFAULT_SEGMENTS if segments is None else segments
    if not isinstance(segments, list | tuple):
        raise InvalidValue(f"is {short_repr(segments)}; a list of quire.Segment is needed.", argument="segments")
    for segment in segments:
        add_segment(plan, segment)
    plan.put_note(KEY, name=key)
