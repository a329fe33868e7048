"""`open`: its options, the segments of a new context, and how a context is opened or created in a storage."""

from collections.abc import Callable, Sequence
from os import urandom
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from quire.context import Context
from quire.core.plan import Plan
from quire.core.records import KEY
from quire.errors import Conflict, Hint, InvalidOperation, InvalidValue, check_names, names_options, short_repr
from quire.model.pages import Permission, Segment, SegmentType
from quire.model.text import check_one_line
from quire.model.tokens import TokenCounter
from quire.storage.base import RESERVED, Durability, Storage, no_such_context
from quire.storage.memory import MemoryStorage
from quire.storage.urls import StoreLocation, is_new_path, storage_at
from quire.system import ContextSystem
from quire.system.rules import check_bool
from quire.system.segments import add_segment
from quire.view.options import CompressionConfig
from quire.view.preamble import new_key

if TYPE_CHECKING:
    from quire.search.vectors import Embedder

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
    setup = Setup(budget, counter, compression, segments, key, preamble, embedder, redact)
    if check_bool(create, "create") and is_new_path(where):  # a wrong option must not leave an empty store
        open_in(MemoryStorage(), context, setup).close()
    storage, owns = storage_at(where, durability=durability, create=create)
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
    """Return a `Setup` with these options and defaults for all other options. Raise `UnknownOption`, as `open` does."""
    check_names(options, Setup._fields, "open")
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
        raise InvalidValue(f"Context name {short_repr(context)} is not allowed: the prefix {RESERVED!r} is reserved.")
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
