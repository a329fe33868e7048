"""The contract of storages as tests: subclass `StorageContract`, override `open_storage`, and run pytest.

    class TestMyStorage(StorageContract):
        def open_storage(self, place):
            return MyStorage(place)

This package imports no test framework.
"""

from quire.next.testing.contexts import ContextRules, ForkRules, ModelRules, SharingRules
from quire.next.testing.records import OrderRules, RecordRules

__all__ = ["StorageContract"]


class StorageContract(RecordRules, OrderRules, ContextRules, ForkRules, SharingRules, ModelRules):
    """Every test that a storage must pass. Subclass it and override `open_storage`.

    Set `persistent = False` if data is lost with the last handle, and `closes = False` if a closed handle still works.
    Both are for stores in memory.
    """
