"""Signing keys without gpg: armour, and the fingerprints of the keys inside (RFC 4880 and 9580)."""

import base64
import binascii
import hashlib
import re
from collections.abc import Container

BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
END = b"-----END PGP PUBLIC KEY BLOCK-----"
LINE = 64
"""Characters of a line of armour."""
PUBLIC_KEY = 6
NEW_FORMAT = 0x40
ONE_BYTE, TWO_BYTES = 192, 224
"""Where a new packet's length takes one byte, and where two."""
FIVE_BYTES = 0xFF
VERSION_4, VERSION_5 = 4, 5
OLD_LENGTHS = {0: 1, 1: 2, 2: 4}


_BLOCK = re.compile(re.escape(BEGIN) + rb"\r?\n(.*?)" + re.escape(END), re.DOTALL)


def armored(content: bytes) -> bool:
    return BEGIN in content


def alone(content: bytes) -> bytes:
    """Return armoured keys without what stands around them on a page or in a mail; others as they are.

    Raises ValueError where an armour has a beginning and no end.
    """
    if not armored(content):
        return content
    return b"".join(BEGIN + b"\n" + block + END + b"\n" for block in _blocks(content))


def _blocks(content: bytes) -> list[bytes]:
    found = [match[1].replace(b"\r", b"") for match in _BLOCK.finditer(content)]
    if len(found) != content.count(BEGIN):
        raise ValueError("its armour is cut off")
    return found


def binary(content: bytes) -> bytes:
    """Return keys without their armour; raises ValueError where it is broken."""
    return b"".join(map(_decoded, _blocks(content))) if armored(content) else content


def _decoded(block: bytes) -> bytes:
    lines = [line.strip() for line in block.splitlines()]
    # Headers end at the first empty line; the line that begins with "=" is a checksum.
    body = lines[lines.index(b"") :] if b"" in lines else lines
    try:
        return base64.b64decode(b"".join(line for line in body if not line.startswith(b"=")), validate=True)
    except binascii.Error as error:
        raise ValueError("its armour is broken") from error


def fingerprints(content: bytes) -> list[str]:
    """Return the fingerprints of the primary keys, in capital hex; raises ValueError where it is no key."""
    found = [fingerprint for fingerprint, _ in _keys(binary(content))]
    if not found:
        raise ValueError("it holds no public key")
    return found


def without(content: bytes, prints: Container[str]) -> bytes:
    """Return a keyring without the keys of these fingerprints, armoured if it was."""
    kept = b"".join(key for fingerprint, key in _keys(binary(content)) if fingerprint not in prints)
    if not armored(content):
        return kept
    text = base64.b64encode(kept)
    lines = [text[at : at + LINE] for at in range(0, len(text), LINE)]
    return b"\n".join([BEGIN, b"", *lines, END, b""])


def _keys(data: bytes) -> list[tuple[str, bytes]]:
    """Return each primary key's fingerprint, and it with all that belongs to it."""
    found: list[tuple[str, bytes]] = []
    at = 0
    while at < len(data):
        tag, body, following = _packet(data, at)
        packet = data[at:following]
        if tag == PUBLIC_KEY and body:
            found.append((_fingerprint(body), packet))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + packet)
        at = following
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
