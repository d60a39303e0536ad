"""What a store raised, in one line for its author: the type, the message where it is the author's, and the line."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

import sqlalchemy

import dendrux

LENGTH: Final = 120
"""Characters of a message."""
DENDRUX: Final = str(Path(dendrux.__file__).parent)
LIBRARIES: Final = (
    str(Path(sqlalchemy.__file__).parent),
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
)


def described(error: BaseException) -> str:
    """Such as `KeyError: 'typo' (my_store.py, line 12, in add_note)`. A driver's message is left out."""
    said = type(error).__name__
    if type(error).__module__ == "builtins" and str(error):
        text = " ".join(str(error).split())
        said += f": {text if len(text) <= LENGTH else f'{text[:LENGTH]} ...'}"
    frame = own_frame(error)
    return said if frame is None else f"{said} ({Path(frame.filename).name}, line {frame.lineno}, in {frame.name})"


def own_frame(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost frame of the author's own code; without one, that of the base store; None for neither."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(DENDRUX)]
    theirs = [frame for frame in frames if not frame.filename.startswith((DENDRUX, *LIBRARIES, "<"))]
    below = [frame for frame in ours if not frame.filename.startswith(f"{DENDRUX}/testing")]
    found = theirs or below
    return found[-1] if found else None
