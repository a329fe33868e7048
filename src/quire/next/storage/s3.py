"""The constructor of a storage in an S3 bucket, and its address. The driver is imported when one is made."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from quire.errors import Hint, InvalidValue, NotInstalled, StorageFailure
from quire.next.storage.blobs import Bucket
from quire.next.storage.log import LogStorage
from quire.storage.address import check_place, find_endpoint, parse_bucket, place_name
from quire.storage.base import Durability, check_durability

if TYPE_CHECKING:
    from obstore.store import S3Store


class S3Storage(LogStorage):
    """A storage in a bucket. Several processes, machines and threads can share it.

    Credentials are arguments, or come from the environment (`AWS_ACCESS_KEY_ID` and so on). `endpoint` is for servers
    other than AWS. A commit is durable when the server has answered, whatever `durability` is.
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
        durability: Durability = "normal",
    ) -> None:
        self.durability = check_durability(durability)
        endpoint = endpoint or find_endpoint()
        check_place(bucket, prefix, endpoint, timeout_seconds)
        keys = {"access_key_id": access_key_id, "secret_access_key": secret_access_key, "session_token": session_token}
        place = {"endpoint": endpoint or None, "region": region, "virtual_hosted_style_request": virtual_hosted}
        options = {**keys, **place, "credential_provider": credential_provider}
        name = place_name(bucket, prefix, endpoint, region)
        super().__init__(Bucket(_connect(name, bucket, timeout_seconds, options), prefix, name=name))

    @classmethod
    def from_url(cls, url: str, *, durability: Durability = "normal", create: bool = True) -> "S3Storage":
        """Return the storage at `s3://bucket/prefix?endpoint=…&region=…`. With `create=False`, it must exist."""
        storage = cls(**parse_bucket(url), durability=durability)
        if not create and next(storage._blobs.list(""), None) is None:
            hint = Hint("Library", arguments="create=True", purpose="to create it")
            raise StorageFailure(f"There is no store at {storage._blobs.name!r}.", hint)
        return storage


def _connect(name: str, bucket: str, seconds: float, options: dict[str, Any]) -> "S3Store":
    """Return a store of obstore. Sends no request."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError:
        raise NotInstalled("S3 needs obstore", "s3", name="obstore") from None
    timeout = timedelta(seconds=seconds)
    client: Any = {"timeout": timeout, "connect_timeout": min(timeout, timedelta(seconds=5))}
    client["allow_http"] = str(options["endpoint"]).startswith("http://")
    given = {option: value for option, value in options.items() if value is not None}
    try:  # quire decides what is repeated
        return S3Store(bucket, client_options=client, retry_config={"max_retries": 0}, **given)
    except (BaseError, ValueError, TypeError):
        raise InvalidValue(f"{name}: endpoint, region and credentials do not fit together.") from None
