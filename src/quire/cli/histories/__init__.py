"""Conversations in files, as agents and their logs write them."""

from quire.cli.histories.files import Conversation, History, Kind, is_store, kind_of, read_history
from quire.cli.histories.unwrapping import Skip

__all__ = ["Conversation", "History", "Kind", "Skip", "is_store", "kind_of", "read_history"]
