"""The message face of a context: exchanges as pages, edits of the record, batches, imports."""

from quire.conversation.facade import Conversation
from quire.conversation.items import Item
from quire.conversation.results import Cleanup, Finding, ImportReport, MarkMap, Modification
from quire.conversation.sequence import Messages

__all__ = ["Cleanup", "Conversation", "Finding", "ImportReport", "Item", "MarkMap", "Messages", "Modification"]
