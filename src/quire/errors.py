"""Every error quire raises on purpose.

    QuireError
    ├── NoSuchPage            an index that names no page (LookupError)
    ├── NoSuchSegment         an id that names no segment (LookupError)
    ├── NoSuchContext         a name that names no context in this store (LookupError)
    ├── NoSuchWindow          an id that names no window (LookupError)
    ├── NoSuchApp             a name that names no registered app (LookupError)
    ├── NoSuchAction          a name that names no action of a window (LookupError)
    ├── InvalidOperation      the call is understood and refused
    │   ├── InvalidValue      an argument is not acceptable (ValueError)
    │   └── NotInstalled      a package that an extra installs is missing (ImportError)
    ├── PermissionDenied      the agent may not do this here
    │   └── QuotaExceeded     it would be more than the agent may add
    ├── Conflict              another writer was first: refresh() and retry
    ├── Busy                  a lock was held too long: retry
    ├── IrreducibleFloor      what must be shown exceeds the budget
    ├── StorageFailure        the backend failed; nothing was changed
    │   ├── StorageClosed     it was closed before
    │   └── OutcomeUnknown    the backend failed and could not be asked whether it committed
    ├── Corrupt               a stored record is damaged
    └── NewerFormat           written by a newer quire

`code` is stable and drives exit codes, HTTP and MCP; the wording is not. An error carries data: the argument or the
operation that it is about, the page, and hints (`Hint`: a call that would help). `str(error)` words this for a Python
program. The command line and a model's tools have a `Wording` of their own and call `describe` with it.
"""

from typing import ClassVar

_CLIP = 80


def short_repr(value: object) -> str:
    """Return the repr of any value, clipped so that an error can quote it."""
    if isinstance(value, str | bytes) and len(value) > _CLIP:
        return f"{value[:_CLIP]!r}… ({len(value):,} long)"
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _CLIP + 40 else f"{text[:_CLIP]}… ({len(text):,} long)"


class Hint:
    """A call that would help: `Hint("expand", "usr-3", purpose="to open it")`.

    `call` names a method or function of the Python API. `page` is the page it takes, if any. `arguments` are its other
    arguments as Python source. `purpose` completes the sentence.
    """

    __slots__ = ("arguments", "call", "page", "purpose")

    def __init__(self, call: str, page: str | None = None, *, arguments: str = "", purpose: str = "") -> None:
        self.call = call
        self.page = page
        self.arguments = arguments
        self.purpose = purpose

    def __repr__(self) -> str:
        return f"<Hint {self.source}>"

    @property
    def source(self) -> str:
        """The call as Python source."""
        given = [*([] if self.page is None else [repr(self.page)]), *([self.arguments] if self.arguments else [])]
        return f"{self.call}({', '.join(given)})"

    def sentence(self, command: str) -> str:
        """Return the hint as a sentence that names `command`, a surface's form of the call."""
        return f"Call {command} {self.purpose}.".replace(" .", ".")


class Wording:
    """The words of one surface. This one is the Python API's; other surfaces override what differs."""

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


def _list_known(what: str, known: list[str], none: str) -> str:
    more = f" and {len(known) - 12} more" if len(known) > 12 else ""
    return f"{what}: {', '.join(known[:12]) or none}{more}."


class QuireError(Exception):
    """Root of every error quire raises on purpose.

    `fact` says what is wrong. With `argument`, the text starts with the argument's name; with `operation`, it starts
    with the operation and the page. `hints` are calls that would help.
    """

    code: ClassVar[str] = "error"

    def __init__(
        self,
        fact: str = "",
        *hints: Hint,
        argument: str | None = None,
        operation: str | None = None,
        page: str | None = None,
    ) -> None:
        self.fact = fact
        self.hints = hints
        self.argument = argument
        self.operation = operation
        self.page = page
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


class NoSuchPage(QuireError, LookupError):
    """No page has this index. If the page moved to another segment, `moved_to` is its index now."""

    code = "no_such_page"

    def __init__(self, index: object, hint: str = "", moved_to: str | None = None) -> None:
        self.index = index
        self.moved_to = moved_to
        if moved_to is not None:
            hint = f"It moved and is now {moved_to!r}."
        hints = () if hint else (Hint("find", purpose="to look for it"),)
        super().__init__(f"No page {short_repr(index)} in this context.{f' {hint}' if hint else ''}", *hints)


class NoSuchSegment(QuireError, LookupError):
    """No segment has this id."""

    code = "no_such_segment"

    def __init__(self, segment: object, known: list[str]) -> None:
        self.segment = segment
        listed = ", ".join(repr(name) for name in known[:12]) or "none yet"
        hints = () if known else (Hint("add_segment", purpose="to add one"),)
        super().__init__(f"No segment {short_repr(segment)} in this context. Segments: {listed}.", *hints)


class NoSuchContext(QuireError, LookupError):
    """No context has this name in the store."""

    code = "no_such_context"


class NoSuchWindow(QuireError, LookupError):
    """No window has this id."""

    code = "no_such_window"

    def __init__(self, window: object, known: list[str]) -> None:
        self.window = window
        super().__init__(f"No window {short_repr(window)}. {_list_known('Open windows', known, 'none')}")


class NoSuchApp(QuireError, LookupError):
    """No app is registered under this name."""

    code = "no_such_app"

    def __init__(self, app: object, known: list[str]) -> None:
        self.app = app
        hints = () if known else (Hint("windows.register", purpose="to add one"),)
        super().__init__(f"No app {short_repr(app)}. {_list_known('Apps', known, 'none yet')}", *hints)


class NoSuchAction(QuireError, LookupError):
    """The window has no action of this name."""

    code = "no_such_action"

    def __init__(self, action: object, known: list[str]) -> None:
        self.action = action
        super().__init__(f"No action {short_repr(action)} here. {_list_known('Actions', known, 'none')}")


class InvalidOperation(QuireError):
    """The call is understood and refused; the text names what would work. Nothing changed."""

    code = "invalid_operation"


class InvalidValue(InvalidOperation, ValueError):
    """An argument is not acceptable; the text quotes it and says what would be."""

    code = "invalid_value"


class NotInstalled(InvalidOperation, ImportError):
    """A package that an extra of quire installs is missing. `name` is the package."""

    def __init__(self, fact: str, *, name: str | None = None) -> None:
        super().__init__(fact)
        self.name = name


class PermissionDenied(QuireError):
    """The agent may not do this here."""

    code = "permission_denied"


class QuotaExceeded(PermissionDenied):
    """The agent would add more than it may."""

    code = "quota_exceeded"


class Conflict(QuireError):
    """Another writer changed the context first. Nothing was written: refresh() and retry."""

    code = "conflict"


class Busy(QuireError):
    """A lock was held too long by another writer. Nothing was written: retry."""

    code = "busy"


class IrreducibleFloor(QuireError):
    """What must be shown does not fit the budget."""

    code = "irreducible_floor"


class StorageFailure(QuireError):
    """The backend failed (disk full, connection lost, …). Nothing was changed."""

    code = "storage_failure"


class StorageClosed(StorageFailure):
    """The storage was closed: open it again."""

    code = "storage_closed"


class OutcomeUnknown(StorageFailure):
    """The backend failed while committing and could not be asked what happened. refresh() tells."""

    code = "outcome_unknown"


class Corrupt(QuireError):
    """A stored record is damaged; the text names it."""

    code = "corrupt"


class NewerFormat(QuireError):
    """The store was written by a newer quire; the text names the format and the one this version reads."""

    code = "newer_format"
