"""Reading a context from a JSON document: older forms too (no types, no per-segment counters).

What breaks an invariant is refused with its place; the rest is planned as a replacement of the whole context, so that
it is one undoable commit.
"""

import json
from datetime import datetime
from typing import Any, NoReturn

from msgspec.structs import replace

from quire import ranks
from quire.clock import as_milliseconds
from quire.errors import InvalidOperation, InvalidValue, shown
from quire.pages import (
    MAX_NUMBER,
    Lifecycle,
    Permission,
    SegmentType,
    Visibility,
    check_segment_id,
    format_index,
    parse_index,
)
from quire.plan import Plan
from quire.records import BATCHES, Header, SegmentRecord, page_key, segment_number
from quire.system import transcript
from quire.system.marshalling import VERSION
from quire.system.rules import choice, verify, whole_number
from quire.system.segments import check_conversation
from quire.text import MAX_DESCRIPTION, MAX_NAME, body_text, encode_meta, one_line


def unmarshal(plan: Plan, data: bytes | str) -> None:
    """Plan to replace the whole context by the document. Raises `InvalidValue` with the place of what is wrong."""
    document = _Document(_parse(data))
    plan.settle()
    _clear(plan)
    document.plan(plan)
    if plan.batches():
        plan.put_note(BATCHES)
    try:
        verify(plan)
        check_conversation(plan)
    except InvalidOperation as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(f"The document breaks a rule: {error}") from None


def _parse(data: bytes | str) -> dict[str, Any]:
    """The document as plain values; stricter than JSON readers usually are."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except InvalidValue:
        raise
    except RecursionError:
        raise InvalidValue("The document is nested too deeply to be a context.") from None
    except (ValueError, TypeError) as error:
        raise InvalidValue(f"The document is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidValue(f"The document is {shown(found)}; an object with segments and pages is needed.")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidValue(f"The document has the key {shown(twice)} twice in one object.")
    return found


def _no_constant(name: str) -> NoReturn:
    raise InvalidValue(f"The document holds {name}, which is no JSON value.")


def _clear(plan: Plan) -> None:
    for page in plan.state.segment_pages():
        plan.remove(page.key)
    for number, segment in plan.state.live_segments():
        plan.put_segment(number, replace(segment, gone=True, updated=plan.now))


class _Document:
    """A parsed document, checked place by place and turned into planned pages."""

    def __init__(self, root: dict[str, Any]) -> None:
        version = _field(root, "version", int, "", 1)
        if version > VERSION:
            _refuse("version", f"is {version}; this quire reads up to {VERSION}. Install a newer quire")
        self.pages: dict[str, Any] = _field(root, "pages", dict, "")
        self.segments: list[Any] = _field(root, "segments", list, "")
        self.next = _field(root, "nextIndex", int, "", 0)
        self._keys: dict[str, int] = {}
        self._claimed: dict[str, list[str]] = {}
        self._cold: dict[str, dict[str, list[str]]] = {}
        self._orders: dict[str, list[str]] = {}
        self._listed_by: dict[str, str] = {}
        self._messages: dict[str, tuple[int, ...]] = {}

    def plan(self, plan: Plan) -> None:
        """Plan every segment, then every page."""
        for position, form in enumerate(self.segments):
            place = f"segments[{position}]"
            if not isinstance(form, dict):
                _refuse(place, f"is {shown(form)}; an object is needed")
            self._segment(plan, form, place)
        for index, form in self.pages.items():
            place = f"pages[{shown(index)}]"
            if not isinstance(form, dict):
                _refuse(place, f"is {shown(form)}; an object is needed")
            self._keys[index] = self._key(plan, index, place)
            self._claim(index, form)
        for index, form in self.pages.items():
            self._children(index, form, f"pages[{shown(index)}]")
        ranked = self._ranks()
        self._messages = transcript.read(plan, self.pages, self._keys)
        for index, form in self.pages.items():
            self._page(plan, index, form, ranked.get(index, b""), f"pages[{shown(index)}]")

    def _segment(self, plan: Plan, form: dict[str, Any], place: str) -> None:
        segment_id = check_segment_id(_field(form, "id", str, place))
        known = plan.number_of(segment_id)
        number = plan.add_counter(segment_id) if known is None else known
        existing = plan.segments.get(number)
        if existing is not None and not existing.gone:
            _refuse(place, f"repeats the id {segment_id!r}")
        if segment_id == "" and len(self.segments) > 1:
            _refuse(place, "has the empty id, which only a context's single segment may have")
        root = format_index(segment_id, 0)
        if _field(form, "rootIndex", str, place, root) != root:
            _refuse(f"{place}.rootIndex", f"is {shown(form['rootIndex'])}; it must be {root!r}")
        if root not in self.pages:
            _refuse(place, f"has no root page {root!r}")
        created, updated = _moment(form, "createdAt", place, plan.now), _moment(form, "updatedAt", place, plan.now)
        record = SegmentRecord(
            name=one_line(
                _field(form, "name", str, place, segment_id) or "Pages", f"{place}.name", MAX_NAME, empty=False
            ),
            description=one_line(_field(form, "description", str, place, ""), f"{place}.description", MAX_DESCRIPTION),
            type=choice(SegmentType, form.get("type", SegmentType.CUSTOM), f"{place}.type"),
            permission=choice(Permission, form.get("permission", Permission.READ_WRITE), f"{place}.permission"),
            max_capacity=whole_number(form.get("maxCapacity", 0), f"{place}.maxCapacity"),
            position=plan.next_position(),
            created=created,
            updated=updated,
            seq=plan.seq,
        )
        plan.put_segment(number, record)
        following = whole_number(form.get("nextIndex", self.next + 1), f"{place}.nextIndex")
        if following > MAX_NUMBER:
            _refuse(f"{place}.nextIndex", f"is {following}; at most {MAX_NUMBER}")
        plan.use_number(number, max(following - 1, 0))

    def _key(self, plan: Plan, index: str, place: str) -> int:
        parts = parse_index(index)
        number = plan.number_of(parts.segment) if parts else None
        segment = None if number is None else plan.segment(number)
        if parts is None or number is None or segment is None or segment.gone:
            _refuse(place, "is not a canonical index of one of the document's segments")
        plan.use_number(number, parts.number)
        return page_key(number, parts.number)

    def _claim(self, index: str, form: dict[str, Any]) -> None:
        """Note which folder a page says it stands in, or would return to."""
        if form.get("lifecycle") == Lifecycle.COLD_ARCHIVED:
            parent, after = _home(form)
            parts = parse_index(index)
            if not parent and parts:
                parent = format_index(parts.segment, 0)
            self._cold.setdefault(parent, {}).setdefault(after, []).append(index)
        elif isinstance(form.get("parent"), str):
            self._claimed.setdefault(form["parent"], []).append(index)

    def _children(self, index: str, form: dict[str, Any], place: str) -> None:
        """Note the order of a folder's children, and that each is listed once, by its parent."""
        if form.get("type") != "ContentsPage":
            return
        listed = _field(form, "children", list, place, self._claimed.get(index, []))
        for child in listed:
            if not isinstance(child, str) or child not in self.pages:
                _refuse(f"{place}.children", f"names {shown(child)}, which is no page of the document")
            if self.pages[child].get("parent") != index:
                _refuse(f"{place}.children", f"names {shown(child)}, whose parent is another page")
            if child in self._listed_by:
                _refuse(f"{place}.children", f"names {shown(child)} twice")
            self._listed_by[child] = index
        self._orders[index] = listed

    def _ranks(self) -> dict[str, bytes]:
        """A rank for every page but the roots: folder by folder, cold pages standing where they would return to."""
        return {
            index: rank
            for folder, listed in self._orders.items()
            for order in [self._with_cold(folder, listed)]
            for index, rank in zip(order, ranks.spaced(len(order)), strict=True)
        }

    def _with_cold(self, folder: str, listed: list[str]) -> list[str]:
        following = self._cold.get(folder)
        if not following:
            return listed
        order: list[str] = []
        waiting = ["", *listed][::-1]
        while waiting:
            index = waiting.pop()
            order.append(index)
            waiting += reversed(following.pop(index, []))
        lost = [index for left in following.values() for index in left]  # after something that is not there
        return [index for index in order if index] + lost

    def _page(self, plan: Plan, index: str, form: dict[str, Any], rank: bytes, place: str) -> None:
        key = self._keys[index]
        folder = _field(form, "type", str, place) == "ContentsPage"
        if not folder and form["type"] != "DetailPage":
            _refuse(f"{place}.type", f"is {shown(form['type'])}; 'DetailPage' or 'ContentsPage' is needed")
        lifecycle = choice(Lifecycle, form.get("lifecycle", 0), f"{place}.lifecycle")
        parent = self._parent(index, form, lifecycle, place)
        said = self._messages.get(index)
        detail = "" if folder or said else body_text(form.get("detail", ""), f"{place}.detail")
        description = one_line(_field(form, "description", str, place, ""), f"{place}.description", MAX_DESCRIPTION)
        created = _moment(form, "createdAt", place, plan.now)
        header = Header(
            folder=folder,
            name=one_line(_field(form, "name", str, place), f"{place}.name", MAX_NAME, empty=False),
            description=description,
            author=plan.author(one_line(_field(form, "author", str, place, plan.actor), f"{place}.author", MAX_NAME)),
            created=created,
            age=_moment(form, "updatedAt", place, plan.now) - created,
            born=plan.seq,
            seq=plan.seq,
            summary_tokens=plan.count(description),
            tokens=plan.count(detail),
            body=plan.add_body(detail),
            messages=0 if folder else whole_number(form.get("messageCount", 0), f"{place}.messageCount"),
            lifecycle=lifecycle,
            visibility=choice(Visibility, form.get("visibility", 0), f"{place}.visibility"),
            pinned=_field(form, "pinned", bool, place, default=False),
            meta=encode_meta(form.get("meta"), f"{place}.meta"),
        )
        header = replace(header, **transcript.fields(plan, form, said, self._keys, place))
        plan.create(key, parent, rank, header)

    def _parent(self, index: str, form: dict[str, Any], lifecycle: Lifecycle, place: str) -> int | None:
        """The key of the page's parent; a cold page's is its home."""
        key = self._keys[index]
        root = page_key(segment_number(key), 0)
        if key == root:
            if form.get("parent") not in (None, ""):
                _refuse(f"{place}.parent", "must be empty: it is a root")
            return None
        if lifecycle is Lifecycle.COLD_ARCHIVED:
            return self._home_key(key, form, place)
        parent = _field(form, "parent", str, place)
        if parent not in self._keys:
            _refuse(f"{place}.parent", f"is {shown(parent)}, which is no page of the document")
        if self._listed_by.get(index) != parent:
            _refuse(f"{place}.parent", f"is {shown(parent)}, which does not list it among its children")
        return self._keys[parent]

    def _home_key(self, key: int, form: dict[str, Any], place: str) -> int:
        """The folder a cold page would return to; a document that names none means the root."""
        root = page_key(segment_number(key), 0)
        if "home" not in form:
            return root
        parent = _home(form)[0]
        home = self._keys.get(parent, -1)
        if segment_number(home) != segment_number(key) or self.pages[parent].get("type") != "ContentsPage":
            _refuse(f"{place}.home", f"is {shown(form['home'])}; it must name a folder of the same segment")
        return home


def _home(form: dict[str, Any]) -> tuple[str, str]:
    """Where a cold page would return to: its old folder and the page before it there."""
    home = form.get("home")
    found = (home.get("parent"), home.get("after")) if isinstance(home, dict) else ("", "")
    parent, after = (text if isinstance(text, str) else "" for text in found)
    return parent, after


def _field(form: dict[str, Any], name: str, kind: type[Any], place: str, default: Any = None) -> Any:
    """A field of the right type, or the default; without a default it must be there."""
    value = form.get(name, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        where = f"{place}.{name}" if place else name
        _refuse(where, f"is {shown(value)}; {kind.__name__} is needed" if name in form else "is missing")
    return value


def _moment(form: dict[str, Any], name: str, place: str, default: int) -> int:
    text = form.get(name)
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
        return max(0, as_milliseconds(moment))
    except (TypeError, ValueError, OverflowError):
        _refuse(f"{place}.{name}", f"is {shown(text)}; a time like 2025-02-06T10:00:00Z is needed")


def _refuse(place: str, what: str) -> NoReturn:
    raise InvalidValue(f"The document cannot be read: {place} {what}.")
