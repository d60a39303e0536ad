"""Blobs in the namespace of a program: a program names a blob by its text, a store by the digest of bytes.

The bytes begin with the namespace, so that two programs never store the same ones.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from typing import Any, Final

from dendrux.runtime.blobs import BlobInfo, BlobReference, BlobStore, FailedBlob, GcResult
from dendrux.runtime.values import BlobEdge
from dendrux.vocabulary import TENANT_PREFIX

SCOPES: Final = frozenset({"tenant_scope", "blob_refs_scope"})
STORING: Final = frozenset({"put_blob", "read_blob", "purge_blob", "collect_garbage"})
"""Methods that take a BlobStore."""
METHODS: Final = STORING | {"blob_info", "blob_references"}


PLACES: Final = {"external": "db", "db": "not in the BlobStore"}
"""Where bytes are, in the words of a model that knows one place, when they should be in a BlobStore."""


class BlobNames:
    """The names of one program's blobs, on the way in and on the way out."""

    def __init__(self, namespace: str, blob_store: BlobStore | None = None) -> None:
        self.namespace = namespace
        self.blob_store = blob_store
        """Where the bytes are kept; None: in the database. The model does not tell the two apart."""
        self.texts: dict[str, str] = {}
        """The text of each blob by its digest."""

    def bytes_of(self, text: str) -> bytes:
        """What the store keeps for a text."""
        return (self.namespace + text).encode()

    def digest(self, text: str) -> str:
        """The name that the store has for a text."""
        name = hashlib.sha256(self.bytes_of(text)).hexdigest()
        self.texts[name] = text
        return name

    def scope(self, value: str) -> str:
        """A tenant's scope, its tenant in the namespace; the empty tenant is one of all."""
        tenant = value.removeprefix(TENANT_PREFIX)
        return TENANT_PREFIX + self.namespace + tenant if value.startswith(TENANT_PREFIX) and tenant else value

    def inside(self, method: str, name: str, value: Any) -> Any:
        """An argument as the store gets it. What is no text, or no reference, is refused as it is."""
        if name == "blob_refs" and isinstance(value, tuple):
            return [self.edge(item) if isinstance(item, BlobEdge) else item for item in value]
        if not isinstance(value, str):
            return value
        if name in SCOPES:
            return self.scope(value)
        if name == "sha256":
            return self.digest(value)
        if name == "data" and method == "put_blob":
            self.digest(value)
            return self.bytes_of(value)
        return value

    def edge(self, edge: BlobEdge) -> BlobEdge:
        """A reference as the store gets it."""
        scope = self.inside("", "tenant_scope", edge.tenant_scope)
        return replace(edge, tenant_scope=scope, sha256=self.inside("", "sha256", edge.sha256))

    def failed(self, blob: FailedBlob) -> dict[str, str]:
        """A blob that a collection could not delete."""
        scope = blob.tenant_scope.replace(self.namespace, "", 1)
        return {"tenant_scope": scope, "sha256": self.texts.get(blob.sha256, blob.sha256), "code": blob.code}

    def shown(self, value: Any, field: Any) -> Any:
        """An answer as the model would give it; `field` shows what is not about bytes."""
        if isinstance(value, bytes):
            return value.decode().removeprefix(self.namespace)
        if isinstance(value, list):
            return [self.shown(row, field) for row in value]
        if not isinstance(value, BlobInfo | BlobReference | GcResult):
            return value
        known = {f.name: getattr(value, f.name) for f in fields(value) if f.name != "generation"}
        shown: dict[str, Any] = {
            name: [self.failed(blob) for blob in given] if name == "failed" else field(name, given)
            for name, given in known.items()
        }
        size = len(self.namespace.encode())
        if isinstance(value, BlobInfo):
            shown["sha256"] = self.texts.get(value.sha256, value.sha256)
            shown["byte_length"] -= size
            if self.blob_store is not None and value.storage in PLACES:
                shown["storage"] = PLACES[value.storage]
        if isinstance(value, GcResult):
            shown["bytes_freed"] -= size * value.deleted_blobs
        return shown
