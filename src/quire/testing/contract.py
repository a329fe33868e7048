"""The whole contract of a backend, topic by topic."""

from quire.testing.contexts import ContextRules, CopyRules, NameRules
from quire.testing.forks import ForkRules
from quire.testing.handles import SharingRules
from quire.testing.records import OrderRules, RecordRules


class StorageContract(RecordRules, OrderRules, NameRules, ContextRules, SharingRules, CopyRules, ForkRules):
    """Every test a backend must pass. Subclass it and override `open_storage`.

    `persistent = False` says that data do not outlive the last handle, `closes = False` that a closed handle goes on
    working; both are for stores that live in this process.
    """
