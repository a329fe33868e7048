"""quire: an agent's whole memory as a book of pages under a token budget."""

from quire.context import Context
from quire.context import open as open  # noqa: A004 - not in __all__, so that `import *` leaves Python's own open alone
from quire.conversation import Cleanup, Conversation, Finding, ImportReport, Item, MarkMap, Messages, Modification
from quire.errors import (
    Busy,
    Conflict,
    Corrupt,
    InvalidOperation,
    InvalidValue,
    IrreducibleFloor,
    NewerFormat,
    NoSuchAction,
    NoSuchApp,
    NoSuchContext,
    NoSuchPage,
    NoSuchSegment,
    NoSuchWindow,
    OutcomeUnknown,
    PermissionDenied,
    QuireError,
    StorageClosed,
    StorageFailure,
)
from quire.legal import IllegalMessage, check_legal
from quire.library import Library
from quire.messages import Message, ToolCall
from quire.pages import (
    ContentsPage,
    DetailPage,
    Form,
    Lifecycle,
    Mark,
    Page,
    PageIndex,
    Permission,
    Segment,
    SegmentType,
    Visibility,
)
from quire.rendering import Bill, CompressionConfig, Price, RenderOptions, Stats, Usage, View, Why
from quire.schemas import count_tools
from quire.storage.base import Storage
from quire.storage.file import FileStorage
from quire.storage.memory import MemoryStorage
from quire.storage.migrate import Progress, migrate
from quire.storage.opening import open_storage
from quire.storage.sqlite import SQLiteStorage
from quire.system import Change, ContextSystem, Entry, Hit, PageStorage, Problem
from quire.tokens import EstimateCounter, TokenCounter, VocabularyCounter
from quire.windows.actions import action
from quire.windows.app import App, Close, Refresh
from quire.windows.facade import Windows
from quire.windows.window import Window, WindowEvent

__version__ = "0.1.0.dev0"

__all__ = [
    "App",
    "Bill",
    "Busy",
    "Change",
    "Cleanup",
    "Close",
    "CompressionConfig",
    "Conflict",
    "ContentsPage",
    "Context",
    "ContextSystem",
    "Conversation",
    "Corrupt",
    "DetailPage",
    "Entry",
    "EstimateCounter",
    "FileStorage",
    "Finding",
    "Form",
    "Hit",
    "IllegalMessage",
    "ImportReport",
    "InvalidOperation",
    "InvalidValue",
    "IrreducibleFloor",
    "Item",
    "Library",
    "Lifecycle",
    "Mark",
    "MarkMap",
    "MemoryStorage",
    "Message",
    "Messages",
    "Modification",
    "NewerFormat",
    "NoSuchAction",
    "NoSuchApp",
    "NoSuchContext",
    "NoSuchPage",
    "NoSuchSegment",
    "NoSuchWindow",
    "OutcomeUnknown",
    "Page",
    "PageIndex",
    "PageStorage",
    "Permission",
    "PermissionDenied",
    "Price",
    "Problem",
    "Progress",
    "QuireError",
    "Refresh",
    "RenderOptions",
    "SQLiteStorage",
    "Segment",
    "SegmentType",
    "Stats",
    "Storage",
    "StorageClosed",
    "StorageFailure",
    "TokenCounter",
    "ToolCall",
    "Usage",
    "View",
    "Visibility",
    "VocabularyCounter",
    "Why",
    "Window",
    "WindowEvent",
    "Windows",
    "action",
    "check_legal",
    "count_tools",
    "migrate",
    "open_storage",
]
