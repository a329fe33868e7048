"""The whole contract of a backend, topic by topic."""

from quire.testing.contexts import ContextRules
from quire.testing.copying import CopyRules
from quire.testing.forking import ForkRules
from quire.testing.names import NameRules
from quire.testing.order import OrderRules
from quire.testing.records import RecordRules
from quire.testing.sharing import SharingRules


class StorageContract(RecordRules, OrderRules, NameRules, ContextRules, SharingRules, CopyRules, ForkRules):
    """Every test a backend must pass. Subclass it and override `open_storage`.

    `persistent = False` says that data do not outlive the last handle, `closes = False` that a closed handle goes on
    working; both are for stores that live in this process.
    """
