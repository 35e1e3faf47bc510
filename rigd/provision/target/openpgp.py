"""Signing keys without gpg: armour, and the fingerprints of the keys inside (RFC 4880 and 9580)."""

import base64
import binascii
import hashlib

BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
END = b"-----END PGP PUBLIC KEY BLOCK-----"
PUBLIC_KEY = 6
NEW_FORMAT = 0x40
ONE_BYTE, TWO_BYTES = 192, 224
"""Where a new packet's length takes one byte, and where two."""
FIVE_BYTES = 0xFF
VERSION_4, VERSION_5 = 4, 5
OLD_LENGTHS = {0: 1, 1: 2, 2: 4}


def armored(content: bytes) -> bool:
    return BEGIN in content


def binary(content: bytes) -> bytes:
    """Return the key without its armour; raises ValueError where it is none."""
    if not armored(content):
        return content
    block = content.split(BEGIN, 1)[1].split(END, 1)[0].replace(b"\r", b"")
    # Headers end at the first empty line; the line that begins with "=" is a checksum.
    _, _, body = block.partition(b"\n\n")
    lines = [line.strip() for line in body.splitlines() if line.strip() and not line.startswith(b"=")]
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except binascii.Error as error:
        raise ValueError("its armour is broken") from error


def fingerprints(content: bytes) -> list[str]:
    """Return the fingerprints of the primary keys, in capital hex; raises ValueError where it is no key."""
    data = binary(content)
    found: list[str] = []
    at = 0
    while at < len(data):
        tag, body, at = _packet(data, at)
        if tag == PUBLIC_KEY and body:
            found.append(_fingerprint(body))
    if not found:
        raise ValueError("it holds no public key")
    return found


def _fingerprint(body: bytes) -> str:
    if body[0] == VERSION_4:
        return (
            hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False)
            .hexdigest()
            .upper()
        )
    start = b"\x9a" if body[0] == VERSION_5 else b"\x9b"
    return hashlib.sha256(start + len(body).to_bytes(4, "big") + body).hexdigest().upper()


def _packet(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Return a packet's tag and body, and where the next begins."""
    head = data[at]
    if not head & 0x80:
        raise ValueError("it is no OpenPGP key")
    try:
        if head & NEW_FORMAT:
            tag = head & 0x3F
            length, start = _new_length(data, at + 1)
        else:
            tag = (head >> 2) & 0x0F
            size = OLD_LENGTHS.get(head & 3)
            start = at + 1 + (size or 0)
            length = int.from_bytes(data[at + 1 : start], "big") if size else len(data) - start
    except IndexError as error:
        raise ValueError("it is cut off") from error
    if start + length > len(data):
        raise ValueError("it is cut off")
    return tag, data[start : start + length], start + length


def _new_length(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first < ONE_BYTE:
        return first, at + 1
    if first < TWO_BYTES:
        return ((first - ONE_BYTE) << 8) + data[at + 1] + ONE_BYTE, at + 2
    if first == FIVE_BYTES:
        return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
    raise ValueError("it comes in parts, as no key does")
