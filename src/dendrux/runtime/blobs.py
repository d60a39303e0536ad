"""Stored bytes: what is known of them, who refers to them, and what keeps them outside the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from urllib.parse import quote

from dendrux.vocabulary import BlobState


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobKey:
    """One stored object of a blob: a generation is a name that no later object of the same bytes has."""

    tenant_scope: str
    sha256: str
    generation: str

    @property
    def object_name(self) -> str:
        """The name of the external object, safe as a path of three parts."""
        return f"{quote(self.tenant_scope, safe='')}/{self.sha256}/{self.generation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """What is known of stored bytes. `storage` is `db` or `external`."""

    sha256: str
    media_type: str
    byte_length: int
    width: int
    height: int
    frame_count: int
    storage: str
    state: BlobState
    generation: str
    created_at: datetime
    last_used_at: datetime
    """When it was last put or referred to."""
    purged_at: datetime | None
    purge_reason: str | None
    ingest_transform: str | None
    state_changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobReference:
    """One place in a run that refers to a blob."""

    run_id: str
    owner_kind: str
    owner_id: str
    ordinal: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedBlob:
    """A blob that a collection could not finish, with the code of the error."""

    tenant_scope: str
    sha256: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GcResult:
    """What one page of a collection did."""

    deleted_blobs: int = 0
    bytes_freed: int = 0
    skipped_referenced: int = 0
    """Old blobs that some run refers to, so they stay."""
    completed_purges: int = 0
    """Purges that an earlier process began and this page finished."""
    retried_deletes: int = 0
    """Deletions that an earlier process began and this page finished."""
    failed: tuple[FailedBlob, ...] = ()
    next_after: str | None = None
    """Where the next page begins; None after the last one."""


class BlobStore(Protocol):
    """Keeps the bytes of blobs outside the database. Keys are paths of three parts; each is written with one content.

    Every method may be called again with the same arguments.
    """

    async def put(self, key: str, data: bytes) -> None:
        """Store the bytes under the key, whole or not at all."""

    async def get(self, key: str) -> bytes | None:
        """The bytes under the key, None when there are none."""

    async def delete(self, key: str) -> None:
        """Remove the key; nothing happens when it is not there."""
