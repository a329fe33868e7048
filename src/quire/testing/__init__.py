"""What a backend's author needs: the conformance suite, and a storage that fails on demand.

    class TestMyStorage(StorageContract):
        def open_storage(self, place):
            return MyStorage(place)

Under pytest that class runs every test of the contract. Nothing here imports a test framework.
"""

from quire.testing.contract import StorageContract
from quire.testing.faulty import FaultyStorage, InjectedFault

__all__ = ["FaultyStorage", "InjectedFault", "StorageContract"]
