"""The storage in a bucket of an S3-compatible server, and the address of such a store."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from quire.errors import Hint, InvalidValue, NotInstalled, OlderFormat, StorageFailure
from quire.storage.address import check_place, find_endpoint, parse_bucket, place_name
from quire.storage.base import Durability, check_durability
from quire.storage.blobs import Bucket
from quire.storage.log import LogStorage

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_checked: set[str] = set()
"""The buckets whose servers were found fit in this process."""


class S3Storage(LogStorage):
    """Records in a bucket. Several processes, machines and threads can share it.

    Credentials are arguments, or come from the environment (`AWS_ACCESS_KEY_ID` and so on). `endpoint` is for servers
    other than AWS. A server that ignores conditional writes is refused; without `probe`, for keys that may only read,
    this is not checked. A commit is in the bucket when its call returns, with each `durability`.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        virtual_hosted: bool = False,
        credential_provider: Any = None,
        timeout_seconds: float = 30.0,
        probe: bool = True,
        durability: Durability = "normal",
    ) -> None:
        endpoint = endpoint or find_endpoint()
        check_place(bucket, prefix, endpoint, timeout_seconds)
        self.durability = check_durability(durability)
        name = place_name(bucket, prefix, endpoint, region)
        store = _connect(
            name,
            bucket,
            timeout_seconds,
            endpoint=endpoint or None,
            region=region,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=session_token,
            credential_provider=credential_provider,
            virtual_hosted_style_request=virtual_hosted,
        )
        self._use(Bucket(store, prefix, name=name), probe=probe)

    @classmethod
    def over(cls, store: "ObjectStore", prefix: str = "", *, name: str = "", stale_seconds: float = 1.0) -> "S3Storage":
        """Return a storage in any store of obstore with conditional writes: also Google Cloud, Azure, or in memory.

        `name` names it in errors. What others changed is seen by `refresh()`, and by other reads after `stale_seconds`.
        """
        storage = cls.__new__(cls)
        storage.durability = "normal"
        storage._use(Bucket(store, prefix, name=name, stale=stale_seconds), probe=True)
        return storage

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "normal", create: bool = True) -> "S3Storage":
        """Return the storage at `s3://bucket/prefix?endpoint=…&region=…`. With `create=False`, it must exist."""
        storage = cls(**parse_bucket(url), durability=durability)
        if not create and next(storage._blobs.list(""), None) is None:
            hint = Hint("Library", arguments="create=True", purpose="to create it")
            raise StorageFailure(f"There is no store at {storage._blobs.name!r}.", hint)
        return storage

    def _use(self, bucket: Bucket, *, probe: bool) -> None:
        """Keep the records in this bucket. Check first that its server is fit, once per process."""
        if probe and bucket.name not in _checked:
            bucket.check_conditions()
            if next(bucket.list("heads/"), None) is not None:
                raise OlderFormat(
                    f"{bucket.name} was written by quire 0.2 or older. Export its messages with that version, and"
                    " import them here: docs/storage.md shows how."
                )
            _checked.add(bucket.name)
        super().__init__(bucket)


def _connect(name: str, bucket: str, timeout_seconds: float, **options: Any) -> "ObjectStore":
    """Return the client for a bucket. Sends no request. `options` that are not None go to obstore."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError:
        raise NotInstalled("S3 needs obstore", "s3", name="obstore") from None
    timeout = timedelta(seconds=timeout_seconds)
    try:
        return S3Store(
            bucket,
            client_options={
                "allow_http": str(options["endpoint"]).startswith("http://"),
                "timeout": timeout,
                "connect_timeout": min(timeout, timedelta(seconds=5)),
            },
            retry_config={"max_retries": 0},  # quire repeats each request itself: an answer may be lost
            **{option: value for option, value in options.items() if value is not None},
        )
    except (BaseError, ValueError, TypeError):
        raise InvalidValue(f"{name}: endpoint, region and credentials do not fit together.") from None
