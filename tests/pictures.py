"""The headers of image, sound and PDF files."""

from base64 import b64encode
from typing import Any


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + width.to_bytes(4) + height.to_bytes(4) + b"\x08\x02\x00\x00\x00"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\x00\x00\x00"


def jpeg(width: int, height: int, *, before: int = 200, frame: int = 0xC0) -> bytes:
    """Return a JPEG header with `before` bytes of other segments before its size."""
    data = b"\xff\xd8"
    while before > 0:
        taken = min(before, 65_000)
        data += b"\xff\xe1" + (taken + 2).to_bytes(2) + b"\xff" * taken
        before -= taken
    data += b"\xff\xff"  # padding before a marker is allowed
    size = b"\x08" + height.to_bytes(2) + width.to_bytes(2) + b"\x03"
    return data + bytes([frame]) + (len(size) + 2).to_bytes(2) + size + b"\xff\xda\x00\x02"


def webp(kind: str, width: int, height: int) -> bytes:
    if kind == "VP8X":
        body = b"\x00" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == "VP8L":
        body = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little")
    else:
        body = b"\x00" * 3 + b"\x9d\x01\x2a" + width.to_bytes(2, "little") + height.to_bytes(2, "little")
    return b"RIFF\x00\x00\x00\x00WEBP" + kind.ljust(4).encode() + len(body).to_bytes(4, "little") + body


def wav(seconds: int, rate: int = 48_000) -> bytes:
    head = b"RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00" + (rate // 2).to_bytes(4, "little")
    return head + rate.to_bytes(4, "little") + b"\x02\x00\x10\x00data" + bytes(rate * seconds)


def pdf(pages: int) -> bytes:
    objects = b"".join(b"%d 0 obj << /Type /Page /Parent 1 0 R >> endobj\n" % n for n in range(pages))
    return b"%PDF-1.4\n1 0 obj << /Type /Pages /Kids [] >> endobj\n" + objects


def coded(data: bytes) -> str:
    return b64encode(data).decode()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{coded(data)}"


def openai_image(data: bytes, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data), **more}}


def anthropic_image(data: bytes, kind: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": coded(data)}}
