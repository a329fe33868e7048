"""The validation of requests: the query, the body and the path become values of the types of a route."""

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from msgspec import inspect
from starlette.requests import Request

from quire.errors import InvalidValue, short_repr
from quire.server.handlers import EventsQuery
from quire.server.responses import JSON, HttpError
from quire.server.routes import LAST_EVENT_ID, Route, is_optional

_FIELD = re.compile(r" - at `\$\.(\w+)`$")
_KINDS: Mapping[type, str] = {
    inspect.BoolType: "true or false",
    inspect.DictType: "an object",
    inspect.ListType: "a list",
    inspect.StructType: "an object",
}
_HALF_PAIR = re.compile(rb"\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]..", re.IGNORECASE)


def parse_query(route: Route, request: Request) -> Any:
    """Return the validated query of a request. Raise `InvalidValue`."""
    try:
        pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise InvalidValue("The query string is not valid percent-encoded UTF-8.") from None
    given = dict(pairs)
    if len(given) < len(pairs):
        raise InvalidValue("The query string has a parameter twice; each is accepted once.")
    last = request.headers.get(LAST_EVENT_ID)
    if last and route.query is EventsQuery:  # a browser sends it when it reconnects
        given.setdefault("after", last)
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid_field(error, route.query, given, "Parameters", null="") from None


async def parse_body(route: Route, request: Request) -> Any:
    """Return the validated body of a request. Raise `InvalidValue`, or `HttpError` if the type is not JSON."""
    if route.body is None:
        return None
    data = await request.body()
    if not data and is_optional(route.body):
        return route.body() if isinstance(route.body, type) else {}
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json", f"Send the body as {JSON}.")
    try:
        given = msgspec.json.decode(data)
        return msgspec.convert(given, route.body)
    except RecursionError:
        raise InvalidValue("The body is nested too deeply.") from None
    except msgspec.ValidationError as error:
        raise _invalid_field(error, route.body, given, "Fields", null="null") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        half = _HALF_PAIR.search(data)
        reason = f"{half[0].decode()} is half of a surrogate pair and no character." if half else _sentence(error)
        raise InvalidValue(f"The body is invalid: {reason}") from None


def decode_path(value: str) -> str:
    """Return a percent-decoded part of a path. Raise `InvalidValue`."""
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidValue(f"The path has {short_repr(value)}, which is not valid percent-encoded UTF-8.") from None


def _invalid_field(error: Exception, kind: Any, given: Any, what: str, *, null: str) -> InvalidValue:
    """Return the error for a wrong parameter or field, with the value and what is accepted.

    `null` is the word for an omitted value, or "".
    """
    found = inspect.type_info(kind)
    kinds = found.types if isinstance(found, inspect.UnionType) else (found,)
    fields = {field.name: field.type for each in kinds if isinstance(each, inspect.StructType) for field in each.fields}
    place = _FIELD.search(str(error))
    if place and isinstance(given, dict) and {place[1]} <= given.keys() & fields.keys():
        *others, last = filter(None, _accepted(fields[place[1]], null))
        accepted = f"{', '.join(others)} or {last}" if others else last
        return InvalidValue(f"is {short_repr(given[place[1]])}; {accepted} is needed.", argument=place[1])
    return InvalidValue(f"The request is invalid: {_sentence(error)} {what}: {', '.join(fields) or 'none'}.")


def _accepted(kind: inspect.Type, null: str) -> Iterator[str]:
    """Yield the descriptions of the values that a type accepts."""
    match kind:
        case inspect.Metadata(type=described):
            yield from _accepted(described, null)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _accepted(each, null)
        case inspect.LiteralType(values=values):
            yield f"one of {', '.join(map(str, values))}"
        case inspect.IntType(ge=low, le=high):
            yield f"a whole number{_between(' from ', low, high)}"
        case inspect.FloatType(ge=low, le=high):
            yield f"a number{_between(' from ', low, high)}"
        case inspect.StrType(min_length=low, max_length=high):
            yield f"text of {_between('', low, high)} characters" if low or high else "text"
        case inspect.NoneType():
            yield null
        case _:
            yield _KINDS.get(type(kind), "another value")


def _between(word: str, low: float | None, high: float | None) -> str:
    """Return the accepted range of a number after `word`; "" if every number is accepted."""
    if low is None and high is None:
        return ""
    return f"{word}{low or 0:,}{'' if high is None else f' to {high:,}'}"


def _sentence(error: Exception) -> str:
    return f"{str(error).removesuffix('.')}."
