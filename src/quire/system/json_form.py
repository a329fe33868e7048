"""JSON form: a whole context as one JSON document in the form of the design documents.

`marshal` writes it. `unmarshal` reads it, and older forms too (without types or counters per segment). A document that
breaks an invariant is refused, with the place of the error. Otherwise it replaces the whole context in one plan, which
is one undoable commit.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NoReturn

from msgspec.structs import replace

from quire.core.plan import Plan
from quire.core.reader import initial_ranks, slot_of
from quire.core.records import (
    BATCHES,
    PAGE_CODE,
    Batch,
    Header,
    PageRecord,
    SegmentRecord,
    Touched,
    encode_page,
    page_key,
    segment_number,
)
from quire.core.state import State
from quire.errors import InvalidOperation, InvalidValue, short_repr
from quire.model.clock import to_datetime, to_milliseconds
from quire.model.pages import (
    MAX_NUMBER,
    Form,
    Lifecycle,
    Mark,
    Permission,
    SegmentType,
    Visibility,
    check_segment_id,
    format_index,
    parse_index,
)
from quire.model.text import (
    MAX_DESCRIPTION,
    MAX_NAME,
    check_one_line,
    check_text,
    decode_meta,
    encode_meta,
    format_json,
)
from quire.system.document_defaults import complete_document
from quire.system.journal import pages_before
from quire.system.json_messages import message_fields, message_form, read_messages, refuse
from quire.system.rules import check_choice, check_plan, check_whole_number
from quire.system.segments import check_conversation
from quire.system.tree import to_text

VERSION = 1


def marshal(state: State) -> bytes:
    """Return the whole context as JSON: all segments and pages, cold and private ones included, without the journal."""
    return format_json(to_document(state))


def to_document(state: State, *, private: bool = True) -> dict[str, Any]:
    """Return the context as plain values; without `private`, PRIVATE segments and references to them are left out."""
    live = [
        (number, segment)
        for number, segment in state.live_segments()
        if private or segment.permission is not Permission.PRIVATE
    ]
    segments = []
    for number, segment in live:
        counter = state.counters[number]
        segments.append(
            {
                "id": counter.segment,
                "name": segment.name,
                "description": segment.description,
                "type": segment.type,
                "permission": segment.permission,
                "maxCapacity": segment.max_capacity,
                "rootIndex": format_index(counter.segment, 0),
                "nextIndex": counter.next,
                "createdAt": _time(segment.created),
                "updatedAt": _time(segment.updated),
            }
        )
    numbers = {number for number, _ in live}
    pages = (page for page in state.segment_pages() if segment_number(page.key) in numbers)
    document: dict[str, Any] = {
        "version": VERSION,
        "segments": segments,
        "pages": {state.index(page.key): _page_form(state, page) for page in pages},
        "nextIndex": max((state.counters[number].next for number, _ in live), default=1) - 1,
        "createdAt": _time(state.head.created),
        "updatedAt": _time(state.head.updated),
    }
    if batches := state.batches():
        document["batches"] = [_batch_form(state, batch) for batch in batches]
    if outdated := state.outdated_error():  # it may mix two states
        raise outdated
    if not private:
        for form in document["pages"].values():
            if form.get("standin") not in document["pages"]:
                form.pop("standin", None)
    return document


def _batch_form(state: State, batch: Batch) -> dict[str, Any]:
    """Return the first message of a batch, and what it marked: the exchanges as they were when it was opened."""
    numbering = state.numbering()
    before: dict[str, Any] = {}
    for key, old in pages_before(state, batch).items():
        page = state.page(key)
        if not isinstance(page, PageRecord):
            continue
        if isinstance(old, PageRecord) and old.header.numbers:
            before[state.index(key)] = {
                "lifecycle": int(old.header.lifecycle),
                "messages": [numbering.index(number) for number in old.header.numbers],
                **{name: value for name, value in message_form(state, old.header).items() if name != "messages"},
            }
        elif not isinstance(old, PageRecord) and (page.header.form is Form.SUMMARY or state.in_system(page)):
            before[state.index(key)] = None
    return {"boundary": numbering.index(batch.boundary) or 0, "before": before}


def _page_form(state: State, page: PageRecord) -> dict[str, Any]:
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
    if page.is_cold:
        form["home"] = _home_form(state, page)
    if header.folder:
        form["children"] = [state.index(child.key) for child in state.members(page.key)]
    else:
        form["detail"] = to_text(state, header)
        form["messageCount"] = header.messages
        form |= message_form(state, header)
    return form


def _home_form(state: State, page: PageRecord) -> dict[str, str]:
    """Return where a cold page would return to: the folder, and the page before it there (cold ones included)."""
    kept = page.parent is not None and isinstance(state.page(page.parent), PageRecord)  # the folder may be cold itself
    home = page.parent if kept and page.parent is not None else state.home_of(page)
    after = slot_of(page) if kept else None
    ends = (next(state.members(home, after=after, reverse=True, cold=cold), None) for cold in (False, True))
    left = max((end for end in ends if end is not None), key=slot_of, default=None)
    return {"parent": state.index(home), "after": "" if left is None else state.index(left.key)}


def _time(milliseconds: int) -> str:
    return to_datetime(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unmarshal(plan: Plan, data: bytes | str) -> None:
    """Plan to replace the whole context by the document. Raises `InvalidValue` with the place of the error."""
    root = _parse(data)
    complete_document(root)
    document = _Document(root)
    plan.apply_deferred()
    _clear(plan)
    document.plan(plan)
    if plan.batches() or document.batches:
        plan.put_note(BATCHES, batches=document.batches)
    if "createdAt" in root:
        plan.created = _moment(root, "createdAt", "", plan.now)
    try:
        check_plan(plan)
        check_conversation(plan)
    except InvalidOperation as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(f"The document breaks a rule: {error.fact}", *error.hints) from None


def _parse(data: bytes | str) -> dict[str, Any]:
    """Return the document as plain values. Duplicate keys and constants like NaN are refused."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        found = json.loads(text, object_pairs_hook=_check_unique, parse_constant=_refuse_constant)
    except InvalidValue:
        raise
    except RecursionError:
        raise InvalidValue("The document is nested too deeply.") from None
    except (ValueError, TypeError) as error:
        raise InvalidValue(f"The document is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidValue(f"The document is {short_repr(found)}; an object with segments and pages is needed.")
    return found


def _check_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidValue(f"The document has the key {short_repr(twice)} twice in one object.")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidValue(f"The document contains {name}, which is not a JSON value.")


def _clear(plan: Plan) -> None:
    for page in plan.state.segment_pages():
        plan.remove(page.key)
    for number, segment in plan.state.live_segments():
        plan.put_segment(number, replace(segment, gone=True, updated=plan.now))


class _Document:
    """A parsed document. Each place is checked and turned into planned pages."""

    def __init__(self, root: dict[str, Any]) -> None:
        version = _field(root, "version", int, "", 1)
        if version > VERSION:
            refuse("version", f"is {version}; this quire reads up to {VERSION}. Install a newer quire")
        self.pages: dict[str, Any] = _field(root, "pages", dict, "")
        self.segments: list[Any] = _field(root, "segments", list, "")
        self.next = _field(root, "nextIndex", int, "", 0)
        self._keys: dict[str, int] = {}
        self._claimed: dict[str, list[str]] = {}
        self._cold: dict[str, dict[str, list[str]]] = {}
        self._orders: dict[str, list[str]] = {}
        self._listed_by: dict[str, str] = {}
        self._messages: dict[str, tuple[int, ...]] = {}
        self._batches: list[Any] = _field(root, "batches", list, "", [])
        self.batches: tuple[Batch, ...] = ()

    def plan(self, plan: Plan) -> None:
        """Plan every segment, then every page."""
        for position, form in enumerate(self.segments):
            place = f"segments[{position}]"
            if not isinstance(form, dict):
                refuse(place, f"is {short_repr(form)}; an object is needed")
            self._segment(plan, form, place)
        for index, form in self.pages.items():
            place = f"pages[{short_repr(index)}]"
            if not isinstance(form, dict):
                refuse(place, f"is {short_repr(form)}; an object is needed")
            self._keys[index] = self._key(plan, index, place)
            self._claim(index, form)
        for index, form in self.pages.items():
            self._children(index, form, f"pages[{short_repr(index)}]")
        ranked = self._ranks()
        self._messages = read_messages(plan, self.pages, self._keys)
        for index, form in self.pages.items():
            self._page(plan, index, form, ranked.get(index, b""), f"pages[{short_repr(index)}]")
        self.batches = tuple(self._open_batches(plan))

    def _open_batches(self, plan: Plan) -> Iterator[Batch]:
        """Yield every open batch, outermost first."""
        places = {
            self.pages[index]["messages"][place].get("index", -1): number
            for index, found in self._messages.items()
            for place, number in enumerate(found)
        }
        least = 0
        for n, form in enumerate(self._batches):
            given = form if isinstance(form, dict) else {"boundary": form}
            boundary = check_whole_number(given.get("boundary"), f"batches[{n}]")
            following = (number for index, number in places.items() if index >= boundary)
            least = max(least, min(following, default=plan.next_message))
            before = _field(given, "before", dict, f"batches[{n}]", {})
            where = f"batches[{n}].before"
            marks = tuple(self._before(plan, index, old, places, where) for index, old in before.items())
            yield Batch(least, plan.seq, marks)

    def _before(
        self, plan: Plan, index: str, form: dict[str, Any] | None, places: Mapping[int, int], place: str
    ) -> Touched:
        """Return a page as it was when a batch was opened."""
        key = self._keys.get(index, -1)
        page = plan.page(key) if key >= 0 else None
        if not isinstance(page, PageRecord) or not (form is None or isinstance(form, dict)):
            refuse(place, f"has {short_repr(index)}; pages of the document as they were before the batch are needed")
        if form is None:
            return Touched(PAGE_CODE, key)
        numbers = tuple(places[each] for each in _field(form, "messages", list, place) if each in places)
        lifecycle = check_choice(Lifecycle, form.get("lifecycle", 0), f"{place}.lifecycle")
        fields = message_fields(plan, form, numbers, self._keys, f"{place}[{short_repr(index)}]")
        header = replace(page.header, **{"mark": Mark.NONE, "standin": 0, "lifecycle": lifecycle, **fields})
        old = replace(page, header=header)
        return Touched(PAGE_CODE, key, encode_page(key, header, old.group, old.rank), old.group, old.rank)

    def _segment(self, plan: Plan, form: dict[str, Any], place: str) -> None:
        segment_id = check_segment_id(_field(form, "id", str, place))
        known = plan.number_of(segment_id)
        number = plan.add_counter(segment_id) if known is None else known
        existing = plan.segments.get(number)
        if existing is not None and not existing.gone:
            refuse(place, f"repeats the id {segment_id!r}")
        if segment_id == "" and len(self.segments) > 1:
            refuse(place, "has the empty id, which only a context's single segment may have")
        root = format_index(segment_id, 0)
        if _field(form, "rootIndex", str, place, root) != root:
            refuse(f"{place}.rootIndex", f"is {short_repr(form['rootIndex'])}; it must be {root!r}")
        if root not in self.pages:
            refuse(place, f"has no root page {root!r}")
        created, updated = _moment(form, "createdAt", place, plan.now), _moment(form, "updatedAt", place, plan.now)
        record = SegmentRecord(
            name=check_one_line(
                plan.redact(_field(form, "name", str, place, segment_id) or "Pages"),
                f"{place}.name",
                MAX_NAME,
                empty=False,
            ),
            description=_line(plan, form, "description", place, MAX_DESCRIPTION, ""),
            type=check_choice(SegmentType, form.get("type", SegmentType.CUSTOM), f"{place}.type"),
            permission=check_choice(Permission, form.get("permission", Permission.READ_WRITE), f"{place}.permission"),
            max_capacity=check_whole_number(form.get("maxCapacity", 0), f"{place}.maxCapacity"),
            position=plan.next_position(),
            created=created,
            updated=max(created, updated),
            seq=plan.seq,
        )
        plan.put_segment(number, record)
        following = check_whole_number(form.get("nextIndex", self.next + 1), f"{place}.nextIndex")
        if following > MAX_NUMBER:
            refuse(f"{place}.nextIndex", f"is {following}; at most {MAX_NUMBER}")
        plan.use_number(number, max(following - 1, 0))

    def _key(self, plan: Plan, index: str, place: str) -> int:
        parts = parse_index(index)
        number = plan.number_of(parts.segment) if parts else None
        segment = None if number is None else plan.segment(number)
        if parts is None or number is None or segment is None or segment.gone:
            refuse(place, "is not a canonical index of one of the document's segments")
        plan.use_number(number, parts.number)
        return page_key(number, parts.number)

    def _claim(self, index: str, form: dict[str, Any]) -> None:
        """Record the parent of a page; for a cold page, the folder to which it would return."""
        if form.get("lifecycle") == Lifecycle.COLD_ARCHIVED:
            parent, after = _home(form)
            parts = parse_index(index)
            if not parent and parts:
                parent = format_index(parts.segment, 0)
            self._cold.setdefault(parent, {}).setdefault(after, []).append(index)
        elif isinstance(form.get("parent"), str):
            self._claimed.setdefault(form["parent"], []).append(index)

    def _children(self, index: str, form: dict[str, Any], place: str) -> None:
        """Record the order of a folder's children. Each child must be listed once, by its parent."""
        if form.get("type") != "ContentsPage":
            return
        listed = _field(form, "children", list, place, self._claimed.get(index, []))
        for child in listed:
            if not isinstance(child, str) or child not in self.pages:
                refuse(f"{place}.children", f"names {short_repr(child)}, which is not a page of the document")
            if self.pages[child].get("parent") != index:
                refuse(f"{place}.children", f"names {short_repr(child)}, which has another parent")
            if child in self._listed_by:
                refuse(f"{place}.children", f"names {short_repr(child)} twice")
            self._listed_by[child] = index
        self._orders[index] = listed

    def _ranks(self) -> dict[str, bytes]:
        """Return a rank for every page except roots: folder by folder, with cold pages where they would return to."""
        return {
            index: rank
            for folder, listed in self._orders.items()
            for order in [self._with_cold(folder, listed)]
            for index, rank in zip(order, initial_ranks(len(order)), strict=True)
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
        lost = [index for left in following.values() for index in left]  # their `after` page does not exist
        return [index for index in order if index] + lost

    def _page(self, plan: Plan, index: str, form: dict[str, Any], rank: bytes, place: str) -> None:
        key = self._keys[index]
        folder = _field(form, "type", str, place) == "ContentsPage"
        if not folder and form["type"] != "DetailPage":
            refuse(f"{place}.type", f"is {short_repr(form['type'])}; 'DetailPage' or 'ContentsPage' is needed")
        lifecycle = check_choice(Lifecycle, form.get("lifecycle", 0), f"{place}.lifecycle")
        parent = self._parent(index, form, lifecycle, place)
        numbers = self._messages.get(index)
        detail = "" if folder or numbers else check_text(plan.redact(form.get("detail", "")), f"{place}.detail")
        description = _line(plan, form, "description", place, MAX_DESCRIPTION, "")
        created = _moment(form, "createdAt", place, plan.now)
        header = Header(
            folder=folder,
            name=check_one_line(plan.redact(_field(form, "name", str, place)), f"{place}.name", MAX_NAME, empty=False),
            description=description,
            author=plan.author(_line(plan, form, "author", place, MAX_NAME, plan.actor)),
            created=created,
            age=max(0, _moment(form, "updatedAt", place, plan.now) - created),
            born=plan.seq,
            seq=plan.seq,
            summary_tokens=plan.count(description),
            tokens=plan.count(detail),
            body=plan.add_body(detail),
            messages=0 if folder else check_whole_number(form.get("messageCount", 0), f"{place}.messageCount"),
            lifecycle=lifecycle,
            visibility=check_choice(Visibility, form.get("visibility", 0), f"{place}.visibility"),
            pinned=_field(form, "pinned", bool, place, default=False),
            meta=encode_meta(plan.redact_value(form.get("meta")), f"{place}.meta"),
        )
        header = replace(header, **message_fields(plan, form, numbers, self._keys, place))
        plan.create(key, parent, rank, header)

    def _parent(self, index: str, form: dict[str, Any], lifecycle: Lifecycle, place: str) -> int | None:
        """Return the key of the page's parent; for a cold page, of the folder it would return to."""
        key = self._keys[index]
        root = page_key(segment_number(key), 0)
        if key == root:
            if form.get("parent") not in (None, ""):
                refuse(f"{place}.parent", "must be empty: it is a root")
            return None
        if lifecycle is Lifecycle.COLD_ARCHIVED:
            return self._home_key(key, form, place)
        parent = _field(form, "parent", str, place)
        if parent not in self._keys:
            refuse(f"{place}.parent", f"is {short_repr(parent)}, which is not a page of the document")
        if self._listed_by.get(index) != parent:
            refuse(f"{place}.parent", f"is {short_repr(parent)}, which does not list it among its children")
        return self._keys[parent]

    def _home_key(self, key: int, form: dict[str, Any], place: str) -> int:
        """Return the folder a cold page would return to; the root if the document names none."""
        root = page_key(segment_number(key), 0)
        if "home" not in form:
            return root
        parent = _home(form)[0]
        home = self._keys.get(parent, -1)
        if segment_number(home) != segment_number(key) or self.pages[parent].get("type") != "ContentsPage":
            refuse(f"{place}.home", f"is {short_repr(form['home'])}; it must name a folder of the same segment")
        return home


def _home(form: dict[str, Any]) -> tuple[str, str]:
    """Return the old folder of a cold page and the page before it there."""
    home = form.get("home")
    found = (home.get("parent"), home.get("after")) if isinstance(home, dict) else ("", "")
    parent, after = (text if isinstance(text, str) else "" for text in found)
    return parent, after


def _field(form: dict[str, Any], name: str, kind: type[Any], place: str, default: Any = None) -> Any:
    """Return a field of the right type, or the default; without a default the field is required."""
    value = form.get(name, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        where = f"{place}.{name}" if place else name
        refuse(where, f"is {short_repr(value)}; {kind.__name__} is needed" if name in form else "is missing")
    return value


def _line(plan: Plan, form: dict[str, Any], name: str, place: str, limit: int, default: str) -> str:
    """Return a text of one line without secrets, or the default."""
    return check_one_line(plan.redact(_field(form, name, str, place, default)), f"{place}.{name}", limit)


def _moment(form: dict[str, Any], name: str, place: str, default: int) -> int:
    text = form.get(name)
    if text is None:
        return default
    try:
        moment = datetime.fromisoformat(text)
        return max(0, to_milliseconds(moment))
    except (TypeError, ValueError, OverflowError):
        refuse(f"{place}.{name}".lstrip("."), f"is {short_repr(text)}; a time like 2025-02-06T10:00:00Z is needed")
