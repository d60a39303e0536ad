"""What the parameters of blobs accept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from dendrux.runtime.values import BlobEdge
from dendrux.store.checks import duration
from dendrux.vocabulary import EDGES_MAX, GARBAGE_AGE_S, NAME_LENGTH, NO_TENANT, TENANT_PREFIX

_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")
METHODS: Final = ("put", "get", "delete")


def content(name: str, value: Any) -> bytes:
    """Bytes, or what can be read like them."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{name} must be bytes, not {type(value).__name__}")
    return bytes(value)


def digest(name: str, value: Any) -> str:
    """A sha256 as 64 lower-case hexadecimal digits."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if not _SHA256.match(value):
        raise ValueError(f"{name} must be a sha256 of 64 lower-case hexadecimal digits")
    return value


def scope(name: str, value: Any) -> str:
    """The scope of a tenant's blobs: `-` for no tenant, else `t:` and the tenant."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    tenant = value.removeprefix(TENANT_PREFIX)
    if value != NO_TENANT and tenant == value:
        raise ValueError(f"{name} must be {NO_TENANT!r}, or {TENANT_PREFIX!r} followed by a tenant")
    if "\0" in tenant or len(tenant) > NAME_LENGTH or any("\ud800" <= c <= "\udfff" for c in tenant):
        raise ValueError(f"{name} must hold a tenant of at most {NAME_LENGTH} characters without U+0000 or surrogates")
    return value


def age(name: str, value: Any) -> timedelta:
    """How long a blob must be unused before it is garbage."""
    age = duration(name, value)
    if age < timedelta(seconds=GARBAGE_AGE_S):
        raise ValueError(f"{name} must be at least {GARBAGE_AGE_S} seconds: what was just put is not referred to yet")
    return age


def outside(name: str, value: Any) -> Any:
    """A BlobStore."""
    for method in METHODS:
        if not callable(getattr(value, method, None)):
            raise TypeError(f"{name} must be a BlobStore, and {type(value).__name__} has no {method}")
    return value


def edges(name: str, value: Any, fields: dict[str, Any]) -> tuple[BlobEdge, ...]:
    """References of one write, each place named once; `fields` holds the check of each field."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(f"{name} must be a list, not {type(value).__name__}")
    if len(value) > EDGES_MAX:
        raise ValueError(f"{name} must have at most {EDGES_MAX} members, not {len(value)}")
    places = set()
    for edge in value:
        if not isinstance(edge, BlobEdge):
            raise TypeError(f"{name} must hold BlobEdge, not {type(edge).__name__}")
        for field, check in fields.items():
            check(f"{name}.{field}", getattr(edge, field))
        places.add((edge.owner_kind, edge.owner_id, edge.ordinal))
    if len(places) < len(value):
        raise ValueError(f"{name} must name each owner and ordinal once")
    return tuple(value)
