"""Tests for the author of a backend: the conformance suite, and a storage that fails on demand; a stub of a provider.

    class TestMyStorage(StorageContract):
        def open_storage(self, place):
            return MyStorage(place)

pytest runs every test of the contract on that class. This package imports no test framework.
"""

from quire.testing.contexts import ContextRules, ForkRules, ModelRules, SharingRules
from quire.testing.faulty import FaultyStorage, InjectedFault
from quire.testing.records import OrderRules, RecordRules
from quire.testing.stub_provider import StubProvider

__all__ = ["FaultyStorage", "InjectedFault", "StorageContract", "StubProvider"]


class StorageContract(RecordRules, OrderRules, ContextRules, ForkRules, SharingRules, ModelRules):
    """Every test that a storage must pass. Subclass it and override `open_storage`.

    Set `persistent = False` if data is lost with the last handle, and `closes = False` if a closed handle still works.
    Both are for stores in memory.
    """
