"""JSON form: a whole context as one JSON document in the form of the design documents.

`marshal` writes it. `unmarshal` reads it, and older forms too (without types or counters per segment). A document that
breaks an invariant is refused, with the place of the error. Otherwise it replaces the whole context in one plan, which
is one undoable commit.
"""

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.reader import slot_of
from quire.core.records import BATCHES, Header, PageRecord, page_number, segment_number
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, short_repr
from quire.model.clock import to_datetime, to_milliseconds
from quire.model.pages import (
    MAX_NUMBER,
    Lifecycle,
    Permission,
    Segment,
    SegmentType,
    Visibility,
    format_index,
)
from quire.model.text import MAX_NAME, check_one_line, check_text, decode_meta, format_json
from quire.system.json_messages import (
    batch_form,
    message_fields,
    message_form,
    naming,
    place_of,
    read_batches,
    read_messages,
)
from quire.system.rules import check_bool, check_choice, check_plan, check_whole_number
from quire.system.segments import add_segment
from quire.system.tree import new_header, to_segment, to_text

VERSION = 1
_SEGMENT_FIELDS = {name: name for name in ("id", "name", "description", "type", "permission")}
_SEGMENT_FIELDS |= {"maxCapacity": "max_capacity", "rootIndex": "root_index"}
"""The fields of a segment by their names in a document."""


def marshal(state: State) -> bytes:
    """Return the whole context as JSON: all segments and pages, cold and private ones included, without the journal."""
    return format_json(to_document(state))


def to_document(state: State, *, private: bool = True) -> dict[str, Any]:
    """Return the context as plain values; without `private`, PRIVATE segments and references to them are left out."""
    live = [n for n, each in state.live_segments() if private or each.permission is not Permission.PRIVATE]
    pages = [page for page in state.segment_pages() if segment_number(page.key) in live]
    folders: defaultdict[int | None, list[PageRecord]] = defaultdict(list)
    places: dict[int, int] = {}
    for page in sorted(pages, key=slot_of):
        places[page.key] = len(folders[page.parent])
        folders[page.parent].append(page)
    document: dict[str, Any] = {
        "version": VERSION,
        "segments": [_segment_form(state, number) for number in live],
        "pages": {state.index(page.key): _page_form(state, page, folders[page.key], places) for page in pages},
        "nextIndex": max((state.counters[number].next for number in live), default=1) - 1,
        "createdAt": _time(state.head.created),
        "updatedAt": _time(state.head.updated),
    }
    if batches := state.batches():
        document["batches"] = [batch_form(state, batch) for batch in batches]
    if outdated := state.outdated_error():  # it may mix two states
        raise outdated
    if not private:
        for form in document["pages"].values():
            if form.get("standin") not in document["pages"]:
                form.pop("standin", None)
    return document


def _segment_form(state: State, number: int) -> dict[str, Any]:
    segment = to_segment(state, number)
    return {
        **{name: getattr(segment, field) for name, field in _SEGMENT_FIELDS.items()},
        "nextIndex": state.counters[number].next,
        "createdAt": _time(to_milliseconds(segment.created_at)),
        "updatedAt": _time(to_milliseconds(segment.updated_at)),
    }


def _page_form(state: State, page: PageRecord, children: list[PageRecord], places: dict[int, int]) -> dict[str, Any]:
    """Return a page with its children. `places` are the places of all pages in their folders."""
    header = page.header
    form: dict[str, Any] = {
        "type": "ContentsPage" if header.folder else "DetailPage",
        "name": header.name,
        "description": header.description,
        "lifecycle": header.lifecycle,
        "visibility": header.visibility,
        "parent": "" if page.parent is None or page.is_cold else state.index(page.parent),
        "pinned": header.pinned,
        "author": state.actor(header.author),
        "createdAt": _time(header.created),
        "updatedAt": _time(header.created + header.age),
    }
    if header.meta:
        form["meta"] = decode_meta(header.meta)
    if page.is_cold:  # it would return to this place, cold pages counted, or to the end if its folder is gone
        kept = page.parent in places
        home = page.parent if kept and page.parent is not None else state.home_of(page)
        form["home"] = {"parent": state.index(home)} | ({"place": places[page.key]} if kept else {})
    if header.folder:
        return form | {"children": [state.index(child.key) for child in children if not child.is_cold]}
    return form | {"detail": to_text(state, header), "messageCount": header.messages} | message_form(state, header)


def _time(milliseconds: int) -> str:
    return to_datetime(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Document(Struct, rename="camel"):
    """The shape of a document. Segments and pages are checked when they are read."""

    segments: list[dict[str, Any]]
    pages: dict[str, dict[str, Any]]
    version: int = VERSION
    next_index: int = 0
    created_at: str | None = None
    batches: list[Any] = []


def unmarshal(plan: Plan, data: bytes | str) -> None:
    """Plan to replace the whole context by the document. Raises `InvalidValue` with the place of the error."""
    document = _parse(data)
    _complete_types(document)
    plan.apply_deferred()
    for page in plan.state.segment_pages():
        plan.remove(page.key)
    for number, segment in plan.state.live_segments():
        plan.put_segment(number, replace(segment, gone=True, updated=plan.now))
    try:
        _read(plan, document)
        check_plan(plan)
    except InvalidOperation as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(f"The document breaks a rule: {error.fact}", *error.hints) from None


def _parse(data: bytes | str) -> _Document:
    """Return the document as plain values. Duplicate keys and constants like NaN are refused."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        found = json.loads(text, object_pairs_hook=_check_unique, parse_constant=_refuse_constant)
        document = msgspec.convert(found, _Document)
    except InvalidValue:
        raise
    except msgspec.ValidationError as error:
        raise InvalidValue(f"The document cannot be read: {error}.") from None
    except RecursionError:
        raise InvalidValue("The document is nested too deeply.") from None
    except (ValueError, TypeError) as error:
        raise InvalidValue(f"The document is not JSON: {error}.") from None
    if document.version > VERSION:
        raise InvalidValue(
            f"is {document.version}; this quire reads up to {VERSION}. Install a newer quire.", argument="version"
        )
    return document


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise InvalidValue(f"The document has the key {short_repr(twice)} twice in one object.")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidValue(f"The document contains {name}, which is not a JSON value.")


def _complete_types(document: _Document) -> None:
    """Add the types that a document leaves out: SYSTEM for a READ_ONLY `sys`, whose leaves are then pinned; USER.

    USER is `usr`, or else the first segment with messages. Names and descriptions do not count.
    """
    untyped = [form for form in document.segments if "type" not in form]
    for form in untyped:
        if form.get("id") == "sys" and form.get("permission") == Permission.READ_ONLY:
            form["type"] = SegmentType.SYSTEM
            for index, page in document.pages.items():
                if index.startswith("sys-") and page.get("type") == "DetailPage":
                    page.setdefault("pinned", not _is_cold(page))
    if not any(form.get("type") == SegmentType.USER for form in document.segments):
        talks = {index.rpartition("-")[0] for index, page in document.pages.items() if page.get("messages")}
        named = [form for form in untyped if form.get("id") == "usr"]
        for form in [*named, *(form for form in untyped if form.get("id") in talks)][:1]:
            form["type"] = SegmentType.USER


def _is_cold(form: dict[str, Any]) -> bool:
    return form.get("lifecycle") == Lifecycle.COLD_ARCHIVED


def _children(index: str, form: dict[str, Any]) -> list[Any]:
    """Return the children that a folder lists; none if it has no list."""
    children = form.get("children", [])
    if not isinstance(children, list):
        place = f"{place_of(index)}.children"
        raise InvalidValue(f"is {short_repr(children)}; a list of indices is needed.", argument=place)
    return children


def _root_of(index: str) -> str:
    head, dash, _ = index.rpartition("-")
    return f"{head}{dash}0"


def _read(plan: Plan, document: _Document) -> None:
    """Plan the segments, the pages folder by folder, and the open batches of a document."""
    if document.created_at is not None:
        plan.created = _moment(plan, {"createdAt": document.created_at}, "createdAt")
    for n, form in enumerate(document.segments):
        with naming(f"segments[{n}]"):
            _add_segment(plan, form, document)
    keys = {index: _key(plan, index) for index in document.pages}
    numbers, places = read_messages(plan, document.pages, keys)
    for index, folder, form in _in_order(document):
        with naming(place_of(index)):
            header = _header(plan, form, numbers.get(index), keys)
        key, parent = keys[index], keys.get(folder)
        rank = plan.require_referenced(key, key).rank if parent is None else plan.append_rank(parent)
        plan.create(key, parent, rank, header)  # a root was made with its segment; this is its final form
    if plan.batches() or document.batches:
        plan.put_note(BATCHES, batches=tuple(read_batches(plan, document.batches, keys, places)))


def _unlisted(pages: dict[str, dict[str, Any]]) -> dict[str, list[tuple[int, str]]]:
    """Return the pages that are not among the listed children, by their folders, each with its place there.

    A cold page is at the place to which it would return. Another page is at the end of its parent if that lists no
    children, or of the root of its segment if it has no parent.
    """
    placed = {str(child) for index, form in pages.items() for child in _children(index, form)} | set(
        map(_root_of, pages)
    )
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for index, form in pages.items():
        home = form["home"] if isinstance(form.get("home"), dict) else {}
        folder = str((home if _is_cold(form) else form).get("parent", _root_of(index)))
        if _is_cold(form):
            with naming(place_of(index)):
                found[folder].append((check_whole_number(home.get("place", MAX_NUMBER), "home.place"), index))
        elif index not in placed and ("parent" not in form or "children" not in pages.get(folder, {})):
            found[folder].append((MAX_NUMBER, index))
    return found


def _in_order(document: _Document) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield every page with its folder, folders first."""
    left, unlisted = dict(document.pages), _unlisted(document.pages)
    waiting = deque((format_index(form["id"], 0), "") for form in document.segments)
    while waiting:
        index, folder = waiting.popleft()
        with naming(place_of(index)):
            form = left.pop(index, {}) if isinstance(index, str) else {}
            if not form or (folder and _root_of(index) != _root_of(folder)):
                raise InvalidValue(f"is listed in {folder!r}; a page is in one folder of its segment, once.")
            if form.get("parent") not in (None, "", folder):
                raise InvalidValue(f"is {short_repr(form['parent'])}, but {folder!r} lists it.", argument="parent")
            yield index, folder, form
            if form.get("type") == "ContentsPage":
                order = [*_children(index, form)]
                for place, child in sorted(unlisted.pop(index, []), key=itemgetter(0)):
                    order.insert(place, child)
                waiting.extend((child, index) for child in order)
    for index, form in left.items():
        where = {name: form[name] for name in ("parent", "home") if name in form}
        raise InvalidValue(f"is in no folder of the document: {short_repr(where)}.", argument=place_of(index))


def _add_segment(plan: Plan, form: dict[str, Any], document: _Document) -> None:
    given: dict[str, Any] = {field: form[name] for name, field in _SEGMENT_FIELDS.items() if name in form}
    segment = Segment(**{"id": None} | given)
    add_segment(plan, segment)
    root = format_index(segment.id, 0)
    if root not in document.pages:
        raise InvalidValue(f"has no root page {root!r} in the document.", argument="rootIndex")
    number = plan.require_segment(segment.id)
    created, updated = _moment(plan, form, "createdAt"), _moment(plan, form, "updatedAt")
    plan.put_segment(number, replace(plan.segments[number], created=created, updated=max(created, updated)))
    following = check_whole_number(form.get("nextIndex", document.next_index + 1), "nextIndex")
    if following > MAX_NUMBER:
        raise InvalidValue(f"is {following}; at most {MAX_NUMBER} is possible.", argument="nextIndex")
    plan.use_number(number, max(following - 1, 0))


def _key(plan: Plan, index: str) -> int:
    key = plan.key_of(index)
    segment = None if key is None else plan.segment(segment_number(key))
    if key is None or segment is None or segment.gone:
        raise InvalidValue("is not a canonical index of one of the document's segments.", argument=place_of(index))
    plan.use_number(segment_number(key), page_number(key))
    return key


def _header(plan: Plan, form: dict[str, Any], numbers: tuple[int, ...] | None, keys: Mapping[str, int]) -> Header:
    """Return the header of a page that has the messages with these numbers."""
    kind = form.get("type")
    if kind not in ("ContentsPage", "DetailPage"):
        raise InvalidValue(f"is {short_repr(kind)}; 'DetailPage' or 'ContentsPage' is needed.", argument="type")
    is_folder = kind == "ContentsPage"
    text = None if is_folder else "" if numbers else check_text(plan.redact(form.get("detail", "")))
    created = _moment(plan, form, "createdAt")
    count = check_whole_number(form.get("messageCount", 0), "messageCount")
    author = check_one_line(plan.redact(form.get("author", plan.actor)), "author", MAX_NAME)
    return replace(
        new_header(plan, form.get("name"), form.get("description", ""), form.get("meta"), text),
        author=plan.author(author),
        created=created,
        age=max(0, _moment(plan, form, "updatedAt") - created),
        lifecycle=check_choice(Lifecycle, form.get("lifecycle", 0), "lifecycle"),
        visibility=check_choice(Visibility, form.get("visibility", 0), "visibility"),
        pinned=check_bool(form.get("pinned", False), "pinned"),
        **{"messages": 0 if is_folder else count, **message_fields(plan, form, numbers, keys)},
    )


def _moment(plan: Plan, form: Mapping[str, Any], name: str) -> int:
    """Return a time in milliseconds since 1970; now, if the document does not give it."""
    text = form.get(name)
    try:
        return plan.now if text is None else max(0, to_milliseconds(datetime.fromisoformat(text)))
    except (TypeError, ValueError, OverflowError):
        wanted = "a time like 2025-02-06T10:00:00Z is needed"
        raise InvalidValue(f"is {short_repr(text)}; {wanted}.", argument=name) from None
