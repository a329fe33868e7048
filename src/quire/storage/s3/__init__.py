"""S3Storage: commits by conditional writes on any S3-compatible server, over a log engine of immutable chunks."""

from quire.storage.s3.storage import S3Storage

__all__ = ["S3Storage"]
