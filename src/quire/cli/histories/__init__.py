"""Conversations in files, as agents and their logs write them."""

from quire.cli.histories.files import Conversation, History, Kind, kind_of, read_history
from quire.cli.histories.unwrapping import Skip

__all__ = ["Conversation", "History", "Kind", "Skip", "kind_of", "read_history"]
