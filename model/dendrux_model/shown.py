"""The world as a store shows it: what reads answer, put together so that the invariants can look at it.

What no read shows is left empty: contents, usage rows, the members of a submission. An invariant over a shown world is
a statement about the store alone; no step of the model took part in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from dendrux_model.invariants import INVARIANTS, broken_by_state, broken_by_step, changed
from dendrux_model.operations import GetRun, Operation
from dendrux_model.outcomes import NONE, Outcome, Returned
from dendrux_model.values import At, Minted, members
from dendrux_model.world import Event, Interaction, Note, Run, Submission, ToolCall, Totals, Trace, World

Answers = Iterable[tuple[Operation, Outcome]]
"""Reads with what they answered, as `views.view` lists them."""

BETWEEN_VIEWS: Final = ("terminal_is_final", "events_append_only", "note_order")
"""What holds between any two views of one store, whatever happened in between."""


def broken_by_view(answers: Answers) -> list[str]:
    """The invariants that do not hold in what these reads show."""
    seen = list(answers)
    world = shown_world(seen)
    found = broken_by_state(world)
    for read, outcome in seen:
        found += [name for name in broken_by_step(world, read, outcome, world) if name not in found]
    return found


def broken_between(earlier: World, later: World) -> list[str]:
    """The invariants that do not hold between two shown worlds of one store."""
    moved = list(changed(earlier, later))
    return [
        name
        for name in BETWEEN_VIEWS
        if not all(
            holds(old, GetRun(run_id=old.id), NONE, new) for holds in INVARIANTS[name].changes for old, new in moved
        )
    ]


def shown_world(answers: Answers) -> World:
    """The runs that these reads show."""
    shown: dict[str, dict[str, Any]] = {}
    for read, outcome in answers:
        run_id = getattr(read, "run_id", None)
        if run_id is not None and isinstance(outcome, Returned):
            shown.setdefault(run_id, {})[type(read).__name__] = outcome.value
    return World(tuple(shown_run(reads) for reads in shown.values() if reads.get("GetRun") is not None))


def shown_run(reads: dict[str, Any]) -> Run:
    """One run, from what each read says of it."""
    run: dict[str, Any] = reads["GetRun"]
    pause = reads.get("GetPauseState")
    plain = {name: run[name] for name in Run._fields if name in run and not isinstance(run[name], At)}
    return Run(
        **{
            **plain,
            "pause_reason": None,
            "pause_document": None if pause is None else (("document", pause["document"]),),
            "submission": shown_submission(pause),
            "totals": shown_totals(run),
            "meta": None if run["meta"] is None else members(json.loads(run["meta"].text)),
            "lease_expired_at": instant(run["lease_expired_at"]),
            "pii_mapping": reads.get("GetPiiMapping"),
            "events": tuple(shown_event(row) for row in reads.get("GetRunEvents") or ()),
            "traces": tuple(shown_trace(row) for row in reads.get("GetTraces") or ()),
            "tool_calls": tuple(shown_call(row) for row in reads.get("GetToolCalls") or ()),
            "usage": (),
            "interactions": tuple(
                Interaction(given(row), "", row["iteration_index"], rest(row))
                for row in reads.get("GetLLMInteractions") or ()
            ),
            "notes": tuple(shown_note(row) for row in reads.get("GetNotes") or ()),
            "progress_at": instant(run["last_progress_at"]) or 0,
            "paused_at": instant(run["paused_at"]),
            "updated_at": instant(run["updated_at"]) or 0,
            "created_at": instant(run["created_at"]) or 0,
            "content": "",
            "idempotency_fingerprint": "",
        }
    )


def shown_submission(pause: dict[str, Any] | None) -> Submission | None:
    """A submission is seen by its id; its members are laid over the document."""
    if pause is None or pause["submission_id"] is None:
        return None
    return Submission(pause["submission_id"], "", ())


def shown_totals(run: dict[str, Any]) -> Totals:
    """The usage of the whole run."""
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens", "reasoning_tokens")
    return Totals._make([*(run[f"total_{name}"] for name in names), run["total_cost_usd"]])


def shown_event(row: dict[str, Any]) -> Event:
    """An entry of the log; whether its index is its place is checked on the answer itself."""
    return Event(given(row), "", row["event_type"], row["iteration_index"], row["correlation_id"], row["data"])


def shown_trace(row: dict[str, Any]) -> Trace:
    """A message of the conversation."""
    return Trace(given(row), "", row["role"], row["content"], row["order_index"], row["meta"], row["trace_kind"])


def shown_call(row: dict[str, Any]) -> ToolCall:
    """A tool call; what stored its intent and its result is not seen."""
    known = {name: row[name] for name in ("attempt", "started_epoch", "trace_id", "completed")}
    return ToolCall(given(row), "", row["tool_call_id"], rest(row), **known)


def shown_note(row: dict[str, Any]) -> Note:
    """A note of the inbox."""
    stamp = row["delivered_iteration"], instant(row["delivered_at"])
    return Note(row["id"], "", row["text"], row["metadata"], *stamp)


def given(row: dict[str, Any]) -> str | None:
    """The id of a row; None where the model says only that the store mints one."""
    return None if isinstance(row["id"], Minted) else row["id"]


def rest(row: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Everything else that a row shows."""
    return tuple(item for item in row.items() if item[0] != "id")


def instant(shown: Any) -> int | None:
    """The instant that a time stands for."""
    return shown.instant if isinstance(shown, At) else None
