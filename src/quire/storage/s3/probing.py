"""Whether a server keeps to conditional writes. One that ignores them would lose commits without a word."""

from collections.abc import Callable
from contextlib import suppress
from os import urandom
from threading import Lock

from quire.errors import QuireError, StorageFailure
from quire.storage.s3.objects import Objects, Refused, Unanswered

_probed: set[tuple[str, str]] = set()
_lock = Lock()


def probe(objects: Objects, endpoint: str, bucket: str) -> None:
    """Try conditional writes on an object of its own; five requests, once a process and bucket.

    Raises `StorageFailure` if the server ignores the conditions or refuses what fulfils them.
    """
    with _lock:
        if (endpoint, bucket) in _probed:
            return
        key = f"probes/{urandom(8).hex()}"
        try:
            _try(objects, key)
        except Unanswered as error:
            raise objects.failure(error, key) from None
        _probed.add((endpoint, bucket))


def _try(objects: Objects, key: str) -> None:
    tag = objects.create(key, urandom(8))
    try:
        _must_refuse(objects, "If-None-Match", lambda: objects.create(key, urandom(8)))
        _must_refuse(objects, "If-Match", lambda: objects.replace(key, urandom(8), f'"{urandom(16).hex()}"'))
        try:
            objects.replace(key, urandom(8), tag)
        except Refused:
            raise StorageFailure(
                f"{objects.place}: the server refuses a write whose If-Match holds; quire cannot commit there."
            ) from None
    finally:
        with suppress(QuireError):  # `collect` removes what stays
            objects.delete([key])


def _must_refuse(objects: Objects, header: str, write: Callable[[], object]) -> None:
    try:
        write()
    except Refused:
        return
    raise StorageFailure(
        f"{objects.place}: the server ignores {header}, so two writers would overwrite each other."
        " Use a server with conditional writes (AWS S3, MinIO, SeaweedFS, Cloudflare R2, …)."
    )
