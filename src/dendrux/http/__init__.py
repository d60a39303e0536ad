"""Runs over HTTP: a read-only router for FastAPI (extra `http`)."""

from __future__ import annotations

from dendrux.http.reads import make_read_router

__all__ = ["make_read_router"]
