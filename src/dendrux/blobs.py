"""A BlobStore on any filesystem that fsspec knows: a directory, S3, GCS, Azure and others.

    blobs = FsspecBlobStore("s3://bucket/prefix", anon=False)

Needs the extra `blobs`, and the fsspec implementation of the protocol in the URL.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from dendrux.runtime.blobs import BlobStore

__all__ = ["BlobStore", "FsspecBlobStore"]


class FsspecBlobStore:
    """Bytes below one URL. Blocking calls run in threads, so that the event loop goes on."""

    def __init__(self, url: str, **options: Any) -> None:
        """Options go to the filesystem of the URL.

        Refuses: ImportError without fsspec, ValueError for a protocol that it does not know.
        """
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            url_to_fs = None
        if url_to_fs is None:
            raise ImportError("FsspecBlobStore needs fsspec: install dendrux[blobs]")
        self._fs, self._root = url_to_fs(url, **options)

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"

    async def put(self, key: str, data: bytes) -> None:
        """Store the bytes under the key."""
        await asyncio.to_thread(self._put, self._path(key), data)

    def _put(self, path: str, data: bytes) -> None:
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)
        self._fs.pipe_file(path, data)

    async def get(self, key: str) -> bytes | None:
        """The bytes under the key, None when there are none."""
        return await asyncio.to_thread(self._get, self._path(key))

    def _get(self, path: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return bytes(self._fs.cat_file(path))
        return None

    async def delete(self, key: str) -> None:
        """Remove the key; nothing happens when it is not there."""
        await asyncio.to_thread(self._delete, self._path(key))

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(path)
