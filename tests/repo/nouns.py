"""The nouns of this version and the four places where each one lives."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NOUNS = (
    "runs",
    "runs_checkpoint",
    "claims",
    "pauses",
    "control",
    "finish",
    "leases",
    "events",
    "traces",
    "tool_calls",
    "usage",
    "notes",
    "blobs",
    "listing",
    "delegation",
)
"""In the order in which the documentation introduces them."""

PLACES = {
    "SQL": "src/dendrux/store/ops/{noun}.py",
    "meaning": "model/dendrux_model/operations/{noun}.py",
    "contracts": "src/dendrux/testing/store_kit/contracts/{noun}.py",
    "documentation": "docs/operations/{noun}.md",
}
