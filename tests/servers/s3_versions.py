"""Buckets that keep old versions of objects: create one, read all versions, delete them. obstore has no such calls."""

import hmac
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote
from uuid import uuid4
from xml.etree import ElementTree

import httpx

from tests.servers.s3 import server

_NAMES = {"s3": "http://s3.amazonaws.com/doc/2006-03-01/"}
_ENABLED = f'<VersioningConfiguration xmlns="{_NAMES["s3"]}"><Status>Enabled</Status></VersioningConfiguration>'
_SIGNED = "host;x-amz-content-sha256;x-amz-date"


class Version(NamedTuple):
    """One version of an object; a delete marker has no data."""

    key: str
    id: str
    data: bytes


def new_bucket() -> str:
    """Create a bucket with versioning and return its name."""
    bucket = f"quire-{uuid4().hex[:20]}"
    _request("PUT", bucket)
    _request("PUT", bucket, query={"versioning": ""}, body=_ENABLED.encode())
    return bucket


def all_versions(bucket: str) -> Iterator[Version]:
    """Yield all versions of all objects, the deleted ones too."""
    tree = ElementTree.fromstring(_request("GET", bucket, query={"versions": "", "max-keys": "1000"}))
    assert tree.findtext("s3:IsTruncated", "", _NAMES) == "false"
    for kind in ("Version", "DeleteMarker"):
        for found in tree.findall(f"s3:{kind}", _NAMES):
            key, number = (found.findtext(f"s3:{field}", "", _NAMES) for field in ("Key", "VersionId"))
            data = _request("GET", bucket, key, query={"versionId": number}) if kind == "Version" else b""
            yield Version(key, number, data)


def delete_old_versions(bucket: str) -> None:
    """Delete the versions of all objects that are not the current one, and the delete markers."""
    current: dict[str, str] = {}
    tree = ElementTree.fromstring(_request("GET", bucket, query={"versions": "", "max-keys": "1000"}))
    for found in tree.findall("s3:Version", _NAMES):
        if found.findtext("s3:IsLatest", "", _NAMES) == "true":
            current[found.findtext("s3:Key", "", _NAMES)] = found.findtext("s3:VersionId", "", _NAMES)
    for version in list(all_versions(bucket)):
        if current.get(version.key) != version.id:
            _request("DELETE", bucket, version.key, query={"versionId": version.id})


def _request(
    method: str, bucket: str, key: str = "", *, query: dict[str, str] | None = None, body: bytes = b""
) -> bytes:
    """Send a request that is signed with AWS Signature Version 4."""
    there = server()
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = f"/{bucket}/{quote(key)}" if key else f"/{bucket}"
    text = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted((query or {}).items()))
    digest = sha256(body).hexdigest()
    host = there.endpoint.partition("//")[2]
    lines = [method, path, text, f"host:{host}", f"x-amz-content-sha256:{digest}", f"x-amz-date:{now}", "", _SIGNED]
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
    answer = httpx.request(method, f"{there.endpoint}{path}?{text}", content=body, headers=headers)
    answer.raise_for_status()
    return answer.content
