"""Records and the state of one context: plan a change, commit it, apply it."""

from quire.core.page_files import describe
from quire.storage.folder import register_describer

register_describer(describe)
