"""LangGraph: a long-term store in a segment. Namespaces are folders; items are pages with their value as JSON."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import ge, gt, le, lt
from threading import RLock
from typing import Any, NamedTuple, Self, Unpack, cast

from quire.adapters.context_pool import AnyContext, Where, requires_extra, to_context
from quire.aio.calls import CallQueue
from quire.context import Context, Options
from quire.core.plan import Plan
from quire.errors import Hint, InvalidOperation, InvalidValue, NoSuchPage, NoSuchSegment, short_repr
from quire.model.pages import ContentsPage, Page, PageIndex, Permission, Segment
from quire.model.text import MAX_NAME, collapse_whitespace
from quire.search.tokenizer import split_terms
from quire.system.lifecycle import hide
from quire.system.rules import check_whole_number
from quire.system.tree import create_contents_page, create_detail_page, remove_page, set_detail, update_page

with requires_extra("langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        ensure_embeddings,
        get_text_at_path,
        tokenize_path,
    )

__all__ = ["QuireStore"]

Namespace = tuple[str, ...]

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def matches_filter(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Return whether a value matches a filter in every field."""
    return all(_matches_value(value.get(field), condition) for field, condition in (wanted or {}).items())


def matches_namespace(namespace: Namespace, condition: MatchCondition) -> bool:
    """Return whether a namespace matches a condition on its prefix or suffix; `*` matches any label."""
    path = condition.path
    if len(namespace) < len(path):
        return False
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidValue(f"match_type is {short_repr(condition.match_type)}; 'prefix' or 'suffix' is needed.")
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))


def _matches_value(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_compares(value, operator, other) for operator, other in wanted.items())
        return isinstance(value, Mapping) and matches_filter(value, wanted)
    if isinstance(wanted, list | tuple):
        same_length = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same_length and all(_matches_value(one, other) for one, other in zip(value, wanted, strict=True))
    return bool(value == wanted)


def _compares(value: Any, operator: str, other: Any) -> bool:
    if operator == "$eq":
        return bool(value == other)
    if operator == "$ne":
        return bool(value != other)
    order = _ORDERS.get(operator)
    if order is None:
        raise InvalidValue(f"Unknown filter operator {short_repr(operator)}; use $eq, $ne, {', '.join(_ORDERS)}.")
    try:
        return order(float(value), float(other))
    except (TypeError, ValueError):  # texts, such as dates, are compared as texts
        return isinstance(value, str) and isinstance(other, str) and order(value, other)


Place = tuple[Namespace, str]
"""The namespace and the key of an item."""
PUT = "store_put"
"""The operation of every commit of a store."""


_MINUTE = 60_000
"""Milliseconds. A time to live is given in minutes."""
_LONGEST_TTL = 1_000_000_000


class WrongNamespace(InvalidValue, InvalidNamespaceError):
    """A namespace that is not a tuple of texts."""


class ItemIndex:
    """The items and folders of one segment by namespace and key, in the order of creation, and when items expire."""

    def __init__(self, ctx: Context, segment: str) -> None:
        self._ctx = ctx
        self._segment = segment
        self._seen = -1
        self.items: dict[Place, PageIndex] = {}
        self.folders: dict[Namespace, PageIndex] = {}
        self.places: dict[PageIndex, Place] = {}
        self.expiries: dict[PageIndex, int] = {}

    def refresh(self) -> None:
        """Read what was committed since the last call. After other operations than puts, read everything again."""
        pages = self._ctx.pages
        if self._seen == pages.seq:
            return
        after, self._seen = self._seen, pages.seq
        entries = [(entry.operation, self._mine(entry.pages)) for entry in pages.history(after)] if after >= 0 else []
        if after < 0 or any(mine and operation != PUT for operation, mine in entries):
            self.items, self.folders, self.places, self.expiries = {}, {(): f"{self._segment}-0"}, {}, {}
            for page in pages.list_pages(self._segment):
                self._take(page)
            return
        for index in (index for _, mine in entries for index in mine):
            self._read(index)

    def _mine(self, pages: Iterable[PageIndex]) -> list[PageIndex]:
        return [page for page in pages if page.rpartition("-")[0] == self._segment]

    def _read(self, index: PageIndex) -> None:
        try:
            self._take(self._ctx.pages.get_page(index))
        except NoSuchPage:
            self.expiries.pop(index, None)
            place = self.places.pop(index, None)
            if place is not None and self.items.get(place) == index:
                del self.items[place]

    def _take(self, page: Page) -> None:
        namespace = page.meta.get("namespace")
        if not isinstance(namespace, list):
            return
        if isinstance(page, ContentsPage):
            self.folders[tuple(namespace)] = page.index
        elif isinstance(key := page.meta.get("key"), str):
            place = (tuple(namespace), key)
            self.items[place] = page.index
            self.places[page.index] = place
            self.expiries.pop(page.index, None)
            if isinstance(expires := page.meta.get("expires"), int):
                self.expiries[page.index] = expires


class _Put(NamedTuple):
    """A put: the text of the page (None removes it), the fields that a search finds, and the time to live."""

    place: Place
    text: str | None
    indexed: bool | list[str]
    ttl: float | None = None


class QuireStore(BaseStore):
    """Stores items in a segment of a context. A put over a key keeps the old value in the history; it can be undone.

    `where` is an open context, or a path, a URL or a storage where the context `context` is opened. The segment is
    created if it is missing. Agents of the context may read it; a view shows one line for each top namespace. A batch
    is one commit. `index` and `ttl` are LangGraph's: the fields that a search finds and the embeddings, and the default
    time to live. Expired items are not returned; the next put or `sweep_ttl` removes them.
    """

    supports_ttl = True

    def __init__(
        self,
        where: Where,
        *,
        context: str = "store",
        segment: str = "store",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        **options: Unpack[Options],
    ) -> None:
        config = index or IndexConfig()
        self.embeddings = ensure_embeddings(config["embed"]) if config.get("embed") else None
        if self.embeddings is not None and not isinstance(where, AnyContext):
            options.setdefault("embedder", self.embeddings.embed_documents)
        self.ctx = to_context(where, context, **options)
        if self.embeddings is None and (embedder := self.ctx.pages._engine.embedder) is not None:
            self.embeddings = ensure_embeddings(cast(Any, embedder))
        self.ttl_config = ttl
        self._fields = [field for field in config.get("fields") or () if field != "$"]
        self._given = isinstance(where, AnyContext)
        self._segment = segment
        self.ctx.pages._engine.retry(self._make_segment)
        self._items = ItemIndex(self.ctx, segment)
        self._lock = RLock()
        self._queue = CallQueue()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run all operations. Reads see the state before the puts, which are one commit. The last put of a key wins."""
        with self._lock:
            self.ctx.refresh()
            self._items.refresh()
            puts: dict[Place, _Put] = {}
            results: list[Result] = []
            used: set[Place] = set()
            for op in ops:
                if isinstance(op, PutOp):
                    put = _put(op, self._fields)
                    puts[put.place] = put
                    results.append(None)
                else:
                    found = self._read(op)
                    results.append(found)
                    if self._items.expiries and isinstance(op, GetOp | SearchOp) and op.refresh_ttl:
                        used.update(_places_of(found))
            if puts or any(self._can_be_refreshed(place) for place in used):
                self._write(list(puts.values()), used)
            return results

    def sweep_ttl(self) -> int:
        """Remove the expired items in one commit; return their number."""
        with self._lock:
            self.ctx.refresh()
            self._items.refresh()
            expired = sum(1 for index in self._items.places if self._is_expired(index))
            if expired:
                self._write([], set())
            return expired

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run `batch` without blocking the event loop."""
        return await self._queue.run(self.batch, list(ops))

    def close(self) -> None:
        """Release the storage, if it was opened here. Everything is stored even without this call."""
        if not self._given:
            self.ctx.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Reading

    def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                place = (_labels(op.namespace), str(op.key))
                return self._item(place) if self._is_stored(place) else None
            case SearchOp():
                _labels(op.namespace_prefix)
                check_whole_number(op.limit, "limit")
                check_whole_number(op.offset, "offset")
                return list(islice(self._search(op), op.offset, op.offset + op.limit))
            case ListNamespacesOp():
                return self._namespaces(op)
            case _:
                raise InvalidValue(
                    f"{short_repr(op)} is not an operation; use GetOp, SearchOp, ListNamespacesOp or PutOp."
                )

    def _item(self, place: Place) -> Item:
        index = self._items.items[place]
        page = self.ctx.pages.get_page(index)
        return Item(
            value=self._value(index),
            key=place[1],
            namespace=place[0],
            created_at=page.created_at,
            updated_at=page.updated_at,
        )

    def _value(self, index: PageIndex) -> dict[str, Any]:
        text = self.ctx.pages.detail(index)
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise InvalidOperation(
                f"Page {index!r} holds no item: {short_repr(text)} is not a JSON object.",
                Hint("undo", arguments="entry", purpose="with the entry of its last edit"),
            )
        return value

    def _search(self, op: SearchOp) -> Iterator[SearchItem]:
        """Yield the items of a search: hits of the query with their scores, best first, then the others."""
        prefix = tuple(op.namespace_prefix)
        scored = dict(self._hits(op.query, prefix)) if op.query and op.query.strip() else {}
        within = (place for place in self._items.items if place[0][: len(prefix)] == prefix and self._is_stored(place))
        rest = ((place, None) for place in within if place not in scored)
        for place, score in chain(scored.items(), rest):
            item = self._item(place)
            if matches_filter(item.value, op.filter):
                yield SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score=score)

    def _hits(self, query: str, prefix: Namespace) -> Iterator[tuple[Place, float]]:
        """Yield the items of a namespace that match a query, best first."""
        for hit in self.ctx.find(query, len(self._items.items), segment=self._segment, kind="text"):
            place = self._items.places.get(hit.index)
            is_within = place is not None and place[0][: len(prefix)] == prefix and self._is_stored(place)
            if place is not None and is_within and self._is_found(hit.index, query):
                yield place, max(0.0, hit.score) / (1 + max(0.0, hit.score))  # between 0 and 1

    def _is_found(self, index: PageIndex, query: str) -> bool:
        """Return whether a query may find an item: by its indexed fields, or not at all if `index` is False."""
        indexed = self.ctx.pages.get_page(index).meta.get("index", True)
        if isinstance(indexed, bool):
            return indexed
        value, asked = self._value(index), set(split_terms(query))
        texts = (text for path in indexed for text in get_text_at_path(value, tokenize_path(path)))
        return any(not asked.isdisjoint(split_terms(text)) for text in texts)

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        everywhere = {place[0] for place in self._items.items if self._is_stored(place)}
        found = (namespace for namespace in everywhere if all(matches_namespace(namespace, one) for one in conditions))
        return sorted({namespace[: op.max_depth] for namespace in found})[op.offset : op.offset + op.limit]

    # Time to live

    def _now(self) -> int:
        return self.ctx.pages._engine.clock()

    def _is_expired(self, index: PageIndex) -> bool:
        expires = self._items.expiries.get(index)
        return expires is not None and expires <= self._now()

    def _is_stored(self, place: Place) -> bool:
        index = self._items.items.get(place)
        return index is not None and not self._is_expired(index)

    def _can_be_refreshed(self, place: Place) -> bool:
        """Return whether a use moves the expiry of an item. Uses within a hundredth of its life change nothing."""
        index = self._items.items.get(place)
        if index is None or index not in self._items.expiries or self._is_expired(index):
            return False
        life = self.ctx.pages.get_page(index).meta["ttl"] * _MINUTE
        return bool(self._now() + life - self._items.expiries[index] > life / 100)

    # Writing

    def _write(self, puts: list[_Put], used: set[Place]) -> None:
        engine = self.ctx.pages._engine
        engine.retry(lambda: engine.run(self.ctx.pages.actor, PUT, self._plan, puts, used))
        self._items.refresh()

    def _plan(self, plan: Plan, puts: list[_Put], used: set[Place]) -> None:
        """Plan puts, new expiries of used items, and the removal of expired items."""
        self._items.refresh()
        made: dict[Namespace, PageIndex] = {}
        written = {put.place for put in puts}
        for place, index in self._items.items.items():
            if place not in written and self._is_expired(index):
                remove_page(plan, index)
            elif place not in written and place in used and self._can_be_refreshed(place):
                meta = self.ctx.pages.get_page(index).meta
                update_page(plan, index, meta={**meta, "expires": self._now() + round(meta["ttl"] * _MINUTE)})
        for put in puts:
            known = self._items.items.get(put.place)
            if put.text is None:
                if known is not None:
                    remove_page(plan, known)
            elif known is None:
                self._add(plan, put, made)
            else:
                set_detail(plan, known, put.text)
                update_page(plan, known, meta=_meta(put, self._now()))

    def _add(self, plan: Plan, put: _Put, made: dict[Namespace, PageIndex]) -> None:
        namespace, key = put.place
        parent = self._folder(plan, namespace, made)
        index = create_detail_page(plan, _name(key), "", put.text or "", parent, meta=_meta(put, self._now()))
        if not namespace:
            hide(plan, index)

    def _folder(self, plan: Plan, namespace: Namespace, made: dict[Namespace, PageIndex]) -> PageIndex:
        """Return the folder of a namespace; create it if needed. Top folders are closed: one line in a view."""
        known = made.get(namespace) or self._items.folders.get(namespace)
        if known is not None:
            return known
        parent = self._folder(plan, namespace[:-1], made)
        made[namespace] = create_contents_page(
            plan, _name(namespace[-1]), "", parent, meta={"namespace": list(namespace)}
        )
        if len(namespace) == 1:
            hide(plan, made[namespace])
        return made[namespace]

    def _make_segment(self) -> None:
        try:
            self.ctx.pages.get_segment(self._segment)
        except NoSuchSegment:
            description = "What is remembered across conversations"
            self.ctx.pages.add_segment(
                Segment(id=self._segment, name="Store", description=description, permission=Permission.READ_ONLY)
            )


def _labels(namespace: object) -> Namespace:
    """Return a namespace as a tuple. Raise `WrongNamespace` for a text, which would be split into letters."""
    if not isinstance(namespace, tuple | list):
        raise WrongNamespace(
            f"namespace is {short_repr(namespace)}; a tuple is needed, such as ({short_repr(namespace)},)."
        )
    for label in namespace:
        if not isinstance(label, str):
            raise WrongNamespace(f"namespace is {short_repr(namespace)}; its label {short_repr(label)} is not text.")
    return tuple(namespace)


def _places_of(found: Result) -> list[Place]:
    items = found if isinstance(found, list) else [found]
    return [(item.namespace, item.key) for item in items if isinstance(item, Item)]


def _put(op: PutOp, fields: list[str]) -> _Put:
    ttl: object = op.ttl
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < _LONGEST_TTL):
        raise InvalidValue(f"is {short_repr(ttl)}; minutes from 0 to {_LONGEST_TTL:,} are needed.", argument="ttl")
    place = (_labels(op.namespace), str(op.key))
    if op.value is None:
        return _Put(place, None, True)
    if not isinstance(op.value, Mapping):
        raise InvalidValue(f"value is {short_repr(op.value)}; a dict is needed.")
    try:
        text = json.dumps(dict(op.value), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"The value of {op.key!r} cannot be stored as JSON: {error}.") from None
    indexed = op.index if op.index is not None else (fields or True)
    return _Put(place, text, True if indexed == ["$"] else indexed, op.ttl)


def _meta(put: _Put, now: int) -> dict[str, Any]:
    namespace, key = put.place
    meta: dict[str, Any] = {"namespace": list(namespace), "key": key}
    if put.indexed is not True:
        meta["index"] = put.indexed
    if put.ttl is not None:
        meta |= {"ttl": put.ttl, "expires": now + round(put.ttl * _MINUTE)}
    return meta


def _name(text: str) -> str:
    return collapse_whitespace(text)[:MAX_NAME].strip() or "(blank)"
