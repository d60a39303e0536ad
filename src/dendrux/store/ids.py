"""Ids that the store mints when the caller leaves one out: sortable by time, unique without coordination."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_id() -> str:
    """26 characters: 48 bits of milliseconds, 80 random bits. Nothing parses them."""
    number = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def derived_id(*parts: str | int) -> str:
    """The id of a row that follows from others: the same parts give the same id, wherever it is computed."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


class MintedId(str):
    """An id that the store minted for a row inside a larger write. It is no part of that write's content."""

    __slots__ = ()
