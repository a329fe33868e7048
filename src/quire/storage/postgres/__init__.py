"""The PostgreSQL backend: many contexts and many machines share one database.

No statement depends on a session: each one is complete or runs in one transaction. A transaction-pooling proxy may
therefore sit between quire and the server. The driver is imported when a storage is opened.
"""

from quire.storage.postgres.storage import PostgresStorage

__all__ = ["PostgresStorage"]
