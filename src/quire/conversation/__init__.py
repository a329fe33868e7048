"""The messages of a context: exchanges as pages, edits, batches, imports."""

from quire.conversation.batches import Cleanup, Finding, ImportReport, MarkMap, Modification
from quire.conversation.conversation import Conversation
from quire.conversation.sequence import Item, Messages

__all__ = ["Cleanup", "Conversation", "Finding", "ImportReport", "Item", "MarkMap", "Messages", "Modification"]
