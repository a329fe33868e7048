"""Every error quire raises on purpose.

    QuireError
    ├── NoSuchPage            an index that names no page (LookupError)
    ├── NoSuchSegment         an id that names no segment (LookupError)
    ├── NoSuchContext         a name that names no context in this store (LookupError)
    ├── NoSuchWindow          an id that names no window (LookupError)
    ├── NoSuchApp             a name that names no registered app (LookupError)
    ├── NoSuchAction          a name that names no action of a window (LookupError)
    ├── InvalidOperation      the call is understood and refused
    │   └── InvalidValue      an argument is not acceptable (ValueError)
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

`code` is stable and drives exit codes, HTTP and MCP; the wording is not. Texts say what to do next, because a
model reads them too.
"""

from typing import ClassVar

_CLIP = 80


def short_repr(value: object) -> str:
    """The value as an error may quote it: its repr, clipped, whatever it is."""
    if isinstance(value, str | bytes) and len(value) > _CLIP:
        return f"{value[:_CLIP]!r}… ({len(value):,} long)"
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _CLIP + 40 else f"{text[:_CLIP]}… ({len(text):,} long)"


def _listed(what: str, known: list[str], none: str) -> str:
    more = f" and {len(known) - 12} more" if len(known) > 12 else ""
    return f"{what}: {', '.join(known[:12]) or none}{more}."


class QuireError(Exception):
    """Root of every error quire raises on purpose."""

    code: ClassVar[str] = "error"


class NoSuchPage(QuireError, LookupError):
    """No page has this index. If the page moved to another segment, `moved_to` is its index now."""

    code = "no_such_page"

    def __init__(self, index: object, hint: str = "", moved_to: str | None = None) -> None:
        self.index = index
        self.moved_to = moved_to
        if moved_to is not None:
            hint = f"It moved and is now {moved_to!r}."
        super().__init__(f"No page {short_repr(index)} in this context. {hint or 'Use find() to look for it.'}")


class NoSuchSegment(QuireError, LookupError):
    """No segment has this id."""

    code = "no_such_segment"

    def __init__(self, segment: object, known: list[str]) -> None:
        self.segment = segment
        listed = ", ".join(repr(name) for name in known[:12]) or "none yet: add one with add_segment()"
        super().__init__(f"No segment {short_repr(segment)} in this context. Segments: {listed}.")


class NoSuchContext(QuireError, LookupError):
    """No context has this name in the store."""

    code = "no_such_context"


class NoSuchWindow(QuireError, LookupError):
    """No window has this id."""

    code = "no_such_window"

    def __init__(self, window: object, known: list[str]) -> None:
        self.window = window
        super().__init__(f"No window {short_repr(window)}. {_listed('Open windows', known, 'none')}")


class NoSuchApp(QuireError, LookupError):
    """No app is registered under this name."""

    code = "no_such_app"

    def __init__(self, app: object, known: list[str]) -> None:
        self.app = app
        super().__init__(f"No app {short_repr(app)}. {_listed('Apps', known, 'none yet: windows.register() adds one')}")


class NoSuchAction(QuireError, LookupError):
    """The window has no action of this name."""

    code = "no_such_action"

    def __init__(self, action: object, known: list[str]) -> None:
        self.action = action
        super().__init__(f"No action {short_repr(action)} here. {_listed('Actions', known, 'none')}")


class InvalidOperation(QuireError):
    """The call is understood and refused; the text names what would work. Nothing changed."""

    code = "invalid_operation"


class InvalidValue(InvalidOperation, ValueError):
    """An argument is not acceptable; the text quotes it and says what would be."""

    code = "invalid_value"


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
