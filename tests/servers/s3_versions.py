"""Buckets that keep old versions of objects. obstore cannot create one."""

import hmac
from datetime import UTC, datetime
from hashlib import sha256
from uuid import uuid4

import httpx

from tests.servers.s3 import server

_NAMES = "http://s3.amazonaws.com/doc/2006-03-01/"
_ENABLED = f'<VersioningConfiguration xmlns="{_NAMES}"><Status>Enabled</Status></VersioningConfiguration>'
_SIGNED = "host;x-amz-content-sha256;x-amz-date"


def new_bucket() -> str:
    """Create a bucket with versioning and return its name."""
    bucket = f"quire-{uuid4().hex[:20]}"
    _put(bucket, "", b"")
    _put(bucket, "versioning=", _ENABLED.encode())
    return bucket


def _put(bucket: str, query: str, body: bytes) -> None:
    """Send a request that is signed with AWS Signature Version 4."""
    there = server()
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = sha256(body).hexdigest()
    host = there.endpoint.partition("//")[2]
    lines = [
        "PUT",
        f"/{bucket}",
        query,
        f"host:{host}",
        f"x-amz-content-sha256:{digest}",
        f"x-amz-date:{now}",
        "",
        _SIGNED,
    ]
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    canonical = sha256("\n".join([*lines, digest]).encode()).hexdigest()
    secret = f"AWS4{there.secret_access_key}".encode()
    for part in scope.split("/"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    signature = hmac.digest(secret, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{canonical}".encode(), "sha256").hex()
    credential = f"AWS4-HMAC-SHA256 Credential={there.access_key_id}/{scope}"
    headers = {
        "x-amz-date": now,
        "x-amz-content-sha256": digest,
        "authorization": f"{credential}, SignedHeaders={_SIGNED}, Signature={signature}",
    }
    httpx.put(f"{there.endpoint}/{bucket}?{query}", content=body, headers=headers).raise_for_status()
