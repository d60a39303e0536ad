"""What goes over HTTP: JSON of records, and the status that an error of the store has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import HTTPException
from starlette.responses import Response

from dendrux.errors import PersistenceError
from dendrux.runtime.plain import plain
from dendrux.store import RunNotFoundError


def encoded(value: Any) -> bytes:
    """A record or a page as JSON in UTF-8, on one line. Documents are what was stored, whatever their numbers."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def answer(value: Any) -> Response:
    """The same as a response."""
    return Response(encoded(value), media_type="application/json")


@contextmanager
def refusals() -> Iterator[None]:
    """What a read of the store refuses, as HTTP says it. Around calls of the store only.

    404: no such run. 422: an argument that no run can have. 503: try again later. 500: anything else of the store.
    """
    try:
        yield
    except RunNotFoundError as error:
        raise HTTPException(404, detail={"code": error.code, "message": "no such run"}) from None
    except PersistenceError as error:
        headers = {"retry-after": "1"} if error.retryable else None
        detail = {"code": error.code, "message": str(error)}
        raise HTTPException(503 if error.retryable else 500, detail=detail, headers=headers) from None
    except (ValueError, TypeError) as error:
        raise HTTPException(422, detail={"code": "bad_argument", "message": str(error)}) from None
