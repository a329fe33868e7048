"""Every error that quire raises on purpose.

    QuireError
    ├── NoSuchPage            no page has this index (LookupError)
    ├── NoSuchSegment         no segment has this id (LookupError)
    ├── NoSuchContext         no context in this store has this name (LookupError)
    ├── NoSuchWindow          no window has this id (LookupError)
    ├── NoSuchApp             no app is registered under this name (LookupError)
    ├── NoSuchAction          the window has no action of this name (LookupError)
    ├── InvalidOperation      the state of the context does not allow the call
    │   ├── InvalidValue      an argument is not acceptable (ValueError)
    │   │   └── UnknownOption a keyword is not an option of the call (TypeError)
    │   └── NotInstalled      a package that an extra installs is missing (ImportError)
    ├── PermissionDenied      the agent lacks the permission
    │   └── QuotaExceeded     the agent would add more than its quota allows
    ├── Conflict              another writer committed first: refresh() and retry
    │   └── LeaseLost         another worker took over the turn
    ├── Busy                  another writer held a lock too long: retry
    ├── IrreducibleFloor      the pages that must be shown exceed the budget
    ├── StorageFailure        the backend failed; nothing was changed
    │   ├── StorageClosed     the storage was closed before
    │   ├── ReadOnly          the storage cannot be written to
    │   └── OutcomeUnknown    the backend failed during a commit and did not report the outcome
    ├── Corrupt               a stored record is damaged
    ├── NewerFormat           a newer version of quire wrote this
    └── OlderFormat           an older version of quire wrote this

`code` is stable: it decides exit codes, HTTP statuses and MCP errors. The text is not stable.

An error carries data: a fact, the argument or the operation it is about, the page, and hints. A `Hint` is a call that
would help. `str(error)` puts them together for a Python program. Other surfaces have other names for operations and
arguments and other calls to suggest; each one has a `Wording` and calls `error.describe(wording)`.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
_CLIP = 80
_MOST_KNOWN = 12


def short_repr(value: object) -> str:
    """Return the repr of any value, clipped so that an error can quote it."""
    if isinstance(value, str | bytes) and len(value) > _CLIP:
        return f"{value[:_CLIP]!r}… ({len(value):,} long)"
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _CLIP + 40 else f"{text[:_CLIP]}… ({len(text):,} long)"


class Hint(NamedTuple):
    """A call that would help.

    `Hint("expand", "usr-3", purpose="to open it")` reads "Call expand('usr-3') to open it." in Python.
    `call` names a method or function of the Python API. `page` is the page that it takes, if any. `arguments` are its
    other arguments as Python source. `purpose` ends the sentence. `context` is the name of the context to call it on,
    if that is another one.
    """

    call: str
    page: str | None = None
    arguments: str = ""
    purpose: str = ""
    context: str = ""

    @property
    def source(self) -> str:
        """The call as Python source."""
        page = "" if self.page is None else repr(self.page)
        return f"{self.call}({', '.join(filter(None, (page, self.arguments)))})"

    def sentence(self, command: str) -> str:
        """Return the hint as a sentence that names `command`, a surface's form of the call."""
        place = f"in context {self.context!r}" if self.context else ""
        return f"Call {' '.join(filter(None, (command, place, self.purpose)))}."


class Wording:
    """The words that a surface uses in errors. This class has those of the Python API.

    A surface with other names (the tools of a model, the command line) overrides the methods that differ.
    """

    def operation(self, name: str) -> str:
        """Return the surface's name for an operation."""
        return name

    def argument(self, name: str) -> str:
        """Return the surface's name for an argument."""
        return name

    def hint(self, hint: Hint) -> str:
        """Return the hint as a sentence, or "" to leave it out."""
        return hint.sentence(hint.source)


PYTHON = Wording()


def _list_known(what: str, known: Sequence[str], none: str) -> str:
    more = f" and {len(known) - _MOST_KNOWN} more" if len(known) > _MOST_KNOWN else ""
    return f"{what}: {', '.join(known[:_MOST_KNOWN]) or none}{more}."


class QuireError(Exception):
    """Base class of every error that quire raises on purpose.

    `fact` says what is wrong. The text starts with the `argument`, or with the `operation` and the `page`, if they are
    given. `hints` are calls that would help. `data` are the fields of a subclass. `code` is stable.
    """

    code: ClassVar[str] = "error"

    def __init__(
        self,
        fact: str = "",
        *hints: Hint,
        argument: str | None = None,
        operation: str | None = None,
        page: str | None = None,
        **data: Any,
    ) -> None:
        self.fact = fact
        self.hints = hints
        self.argument = argument
        self.operation = operation
        self.page = page
        vars(self).update(data)
        super().__init__(self.describe(PYTHON))

    def describe(self, wording: Wording) -> str:
        """Return the text of this error in the words of a surface."""
        parts = []
        if self.operation is not None:
            place = "" if self.page is None else f" on {self.page}"
            parts.append(f"operation {wording.operation(self.operation)!r}{place}")
        if self.argument is not None:
            parts.append(wording.argument(self.argument))
        if self.fact:
            parts.append(self.fact)
        return " ".join([*parts, *filter(None, map(wording.hint, self.hints))])

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, vars(self))

    def name_place(self, place: str) -> None:
        """Name the place of the error in a list that was given, such as `operations[1]`."""
        if self.argument is None:
            self.fact = f"{place}: {self.fact}"
        elif not self.argument.startswith(place):
            self.argument = f"{place}.{self.argument}"
        self.args = (self.describe(PYTHON),)


def _restore(kind: type[QuireError], args: tuple[Any, ...], fields: dict[str, Any]) -> QuireError:
    """Return an error from another process, without making it again from its arguments."""
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


class NoSuchPage(QuireError, LookupError):
    """No page has this `index`.

    `moved_to` is the new index of a page that moved to another segment. `suggestion` is an index that may be meant.
    """

    code = "no_such_page"

    def __init__(
        self,
        index: object,
        reason: str = "",
        *hints: Hint,
        moved_to: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        self.index = index
        self.moved_to = moved_to
        self.suggestion = suggestion
        if moved_to is not None:
            reason = f"It moved and is now {moved_to!r}."
        elif suggestion is not None:
            reason = f"Did you mean {suggestion!r}?"
        if not reason and not hints:
            hints = (Hint("find", purpose="to look for it"),)
        super().__init__(" ".join(filter(None, [f"No page {short_repr(index)} in this context.", reason])), *hints)


class NoSuchSegment(QuireError, LookupError):
    """No segment has this id. `segment` is the id."""

    code = "no_such_segment"

    def __init__(self, segment: object, known: Sequence[str]) -> None:
        self.segment = segment
        hints = () if known else (Hint("add_segment", purpose="to add one"),)
        listed = _list_known("Segments", [repr(name) for name in known], "none yet")
        super().__init__(f"No segment {short_repr(segment)} in this context. {listed}", *hints)


class NoSuchContext(QuireError, LookupError):
    """No context in this store has this name. `context` is the name, if it is known."""

    code = "no_such_context"
    context: object = None


class NoSuchWindow(QuireError, LookupError):
    """No window has this id. `window` is the id."""

    code = "no_such_window"

    def __init__(self, window: object, known: Sequence[str]) -> None:
        self.window = window
        super().__init__(f"No window {short_repr(window)}. {_list_known('Open windows', known, 'none')}")


class NoSuchApp(QuireError, LookupError):
    """No app is registered under this name. `app` is the name."""

    code = "no_such_app"

    def __init__(self, app: object, known: Sequence[str]) -> None:
        self.app = app
        hints = () if known else (Hint("windows.register", purpose="to add one"),)
        super().__init__(f"No app {short_repr(app)}. {_list_known('Apps', known, 'none yet')}", *hints)


class NoSuchAction(QuireError, LookupError):
    """The window has no action of this name. `action` is the name."""

    code = "no_such_action"

    def __init__(self, action: object, known: Sequence[str]) -> None:
        self.action = action
        super().__init__(f"No action {short_repr(action)} here. {_list_known('Actions', known, 'none')}")


class InvalidOperation(QuireError):
    """The state of the context does not allow the call. The hints name calls that would work. Nothing was changed."""

    code = "invalid_operation"


class InvalidValue(InvalidOperation, ValueError):
    """An argument is not acceptable. The text quotes it and says what is accepted. Nothing was changed."""

    code = "invalid_value"


_SYNONYMS = {"budget": "max_tokens", "tokens": "max_tokens", "limit": "max_tokens"}


class UnknownOption(InvalidValue, TypeError):
    """A keyword is not an option of the call. `option` is the keyword; `suggestion` is what is probably meant."""

    code = "unknown_option"

    def __init__(self, option: object, known: Iterable[str], call: str = "") -> None:
        self.option = option
        self.known = tuple(known)
        self.suggestion = _similar_option(str(option), self.known)
        meant = f" Did you mean {self.suggestion!r}?" if self.suggestion else ""
        listed = f"The options are {', '.join(self.known)}." if self.known else "It has no options."
        super().__init__(f"{short_repr(option)} is not an option{f' of {call}' if call else ''}.{meant} {listed}")


def _similar_option(name: str, known: Sequence[str]) -> str | None:
    from difflib import get_close_matches  # late: only errors need it

    words = {word: word for word in known} | {word: meant for word, meant in _SYNONYMS.items() if meant in known}
    return next((words[word] for word in get_close_matches(name, words, n=1)), None)


def check_names(given: Iterable[str], known: Iterable[str], call: str = "") -> None:
    """Raise `UnknownOption` for the first name that is not known."""
    unknown = set(given).difference(known)
    if unknown:
        raise UnknownOption(min(unknown), known, call) from None


_HAS_OPTIONS = 0x08  # the flag of code with `**options`, as in `inspect`


def names_options(target: F) -> F:
    """Make a function, or all public methods of a class, raise `UnknownOption` for a keyword that it does not have.

    A function with `**options` checks them itself.
    """
    if not isinstance(target, type):
        return cast(F, _with_named_options(cast(FunctionType, target)))
    for name, member in list(vars(target).items()):
        if isinstance(member, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(target, name, _with_named_options(member))
    return target


def _with_named_options(function: FunctionType) -> Callable[..., Any]:
    plain = getattr(function, "__wrapped__", function)
    code = plain.__code__
    if code.co_flags & _HAS_OPTIONS:
        return function
    known = code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]
    title = plain.__name__.replace("__init__", plain.__qualname__.partition(".")[0])

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError:
            check_names(options, [name for name in known if name != "self"], title)
            raise

    return call


class NotInstalled(InvalidOperation, ImportError):
    """A package that an extra of quire installs is missing. `name` is the package, `command` installs the extra."""

    def __init__(self, fact: str, extra: str, *, name: str | None = None) -> None:
        self.name = name
        self.command = install_command(extra)
        super().__init__(f"{fact}: {self.command}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra of quire, from where this quire was installed."""
    import json  # late: only errors need these
    from importlib.metadata import PackageNotFoundError, distribution
    from pathlib import Path
    from shlex import quote

    clone = f"{Path(__file__).parents[2]}[{extra}]"
    try:
        origin = json.loads(distribution("quire").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # a clone on the path
        return f"pip install {quote(clone)}"
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e {quote(clone)}"
    kind = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    source = f" @ {kind}{origin['url']}" if origin else ""
    return f"pip install {quote(f'quire[{extra}]{source}')}"


class PermissionDenied(QuireError):
    """The agent lacks the permission for the operation on this page. `operation` and `page` name them."""

    code = "permission_denied"


class QuotaExceeded(PermissionDenied):
    """The agent would add more than its quota allows."""

    code = "quota_exceeded"


class Conflict(QuireError):
    """Another writer changed the context first. Nothing was written. Call `refresh()` and retry."""

    code = "conflict"


class LeaseLost(Conflict):
    """Another worker took over this turn, because its lease expired. Nothing was written. Start a new turn."""

    code = "lease_lost"


class Busy(QuireError):
    """Another writer held a lock too long, or another worker is in a turn. Nothing was written. Retry."""

    code = "busy"


class IrreducibleFloor(QuireError):
    """The pages that must be shown do not fit the budget.

    `tokens` is what they take, `budget` what a view may take, `parts` names the largest of them with their tokens.
    """

    code = "irreducible_floor"
    tokens: int = 0
    budget: int = 0
    parts: Sequence[tuple[str, int]] = ()


class StorageFailure(QuireError):
    """The backend failed (disk full, connection lost, …). Nothing was changed."""

    code = "storage_failure"


class StorageClosed(StorageFailure):
    """The storage was closed before this call. Open it again."""

    code = "storage_closed"


class ReadOnly(StorageFailure):
    """The storage cannot be written to. Views are drawn as previews there."""

    code = "read_only"


class OutcomeUnknown(StorageFailure):
    """The backend failed during a commit and did not report the outcome. `refresh()` shows it."""

    code = "outcome_unknown"


class Corrupt(QuireError):
    """A stored record is damaged. `record` names the record if there is one, such as "page record 5"."""

    code = "corrupt"
    record: str = ""

    def describe(self, wording: Wording) -> str:
        """Return the text of this error in the words of a surface."""
        return f"{self.record} {super().describe(wording)}".lstrip()


class NewerFormat(QuireError):
    """A newer version of quire wrote this. The text names its format and the format that this version reads."""

    code = "newer_format"


class OlderFormat(QuireError):
    """An older version of quire wrote this. The text tells how to take its messages over."""

    code = "older_format"
