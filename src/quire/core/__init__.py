"""Records and the state of one context: plan a change, commit it, apply it."""

from quire.storage.file import Description, Lookup, register_describer


def _describe(head: bytes, lookup: Lookup) -> Description:
    from quire.core.page_files import ContextDescription  # deferred: only the file backend needs it

    return ContextDescription(head, lookup)


register_describer(_describe)
