"""Finding pages by words in their names, descriptions and bodies, archived ones included: the door to `search`."""

from quire.search.finding import Hit, find
from quire.search.texts import searchable

__all__ = ["Hit", "find", "searchable"]
