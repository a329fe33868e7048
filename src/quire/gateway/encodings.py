"""Decode bodies with a Content-Encoding: gzip, deflate, br, zstd. The size of the result is limited."""

import zlib
from collections.abc import Callable
from typing import Any

from quire.errors import install_command

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


class UndecodableBody(Exception):
    """The encoding is unknown, its package is not installed, the body is damaged, or the result is too large."""


def decode_body(data: bytes, encoding: str, limit: int) -> bytes:
    """Return the body without its encodings. Raise `UndecodableBody` if that is not possible within `limit` bytes."""
    for name in reversed([part.strip().lower() for part in encoding.split(",")]):
        if name in ("", "identity"):
            continue
        decode = _DECODERS.get(name)
        if decode is None:
            raise UndecodableBody(f"The encoding {name!r} is unknown.")
        try:
            data = decode(data, limit)
        except UndecodableBody:
            raise
        except ImportError as error:
            raise UndecodableBody(f"{name} needs {error.name}: {install_command('gateway')}") from None
        except Exception as error:  # each library has errors of its own
            raise UndecodableBody(f"The body is not valid {name}: {error}.") from None
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _too_large(limit: int) -> UndecodableBody:
    return UndecodableBody(f"The decoded body exceeds {limit:,} bytes.")


def _decode_zlib(data: bytes, limit: int, bits: int = _GZIP_OR_ZLIB) -> bytes:
    decoder = zlib.decompressobj(bits)
    found = decoder.decompress(data, limit)
    if decoder.unconsumed_tail:
        raise _too_large(limit)
    if not decoder.eof:
        raise UndecodableBody("The body is incomplete.")
    return found


def _decode_deflate(data: bytes, limit: int) -> bytes:
    try:
        return _decode_zlib(data, limit)
    except zlib.error:  # some senders leave out the zlib header
        return _decode_zlib(data, limit, -zlib.MAX_WBITS)


def _decode_brotli(data: bytes, limit: int) -> bytes:
    import brotli  # late: an optional package

    decoder = brotli.Decompressor()
    found: bytes = decoder.process(data, output_buffer_limit=limit)
    if not decoder.is_finished():
        raise _too_large(limit) if len(found) >= limit else UndecodableBody("The body is incomplete.")
    return found


def _decode_zstd(data: bytes, limit: int) -> bytes:
    import zstandard  # late: an optional package

    found, reader = bytearray(), zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data)
    while chunk := reader.read(1 << 16):
        found += chunk
        if len(found) > limit:
            raise _too_large(limit)
    return bytes(found)


_DECODERS: dict[str, Callable[[bytes, int], Any]] = {
    "gzip": _decode_zlib,
    "x-gzip": _decode_zlib,
    "deflate": _decode_deflate,
    "br": _decode_brotli,
    "zstd": _decode_zstd,
}
