"""The PostgreSQL backend: many contexts, many machines, one database.

Nothing here depends on a session: every statement stands alone or in one transaction, so a transaction-pooling proxy
may stand in between. The driver is imported when a storage is opened.
"""

from quire.storage.postgres.storage import PostgresStorage

__all__ = ["PostgresStorage"]
