"""The S3 backend: conditional writes on any S3-compatible server, and immutable chunks of sorted records."""

from quire.storage.s3.storage import S3Storage

__all__ = ["S3Storage"]
