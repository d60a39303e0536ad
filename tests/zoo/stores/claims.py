"""Broken claims: who owns a run, and what was submitted to it."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from dendrux.db.models import agent_runs
from dendrux.errors import StoreOutcomeUnknown
from zoo.stores.base import BrokenStore
from zoo.stores.tampering import commits_before, tampered, with_assignment, without_assignment, without_guard

runs = agent_runs.c
TAKE = "UPDATE agent_runs SET status = 'running', claim_epoch = :epoch, claimed_epoch = :epoch WHERE id = :run"


class ClaimWithoutSwap(BrokenStore):
    breaks = "a claim reads the status, then takes the run without looking again"
    killed_by = "concurrency.pair_matrix.claim_paused_run"

    async def claim_paused_run(self, run_id: str, *, expected_status: str, **given: Any) -> int | None:
        run = await self.get_run(run_id, **given)
        if run is None or run.status != expected_status or run.cancel_requested:
            return await super().claim_paused_run(run_id, expected_status=expected_status, **given)
        await self.run_sql(TAKE, epoch=run.claim_epoch + 1, run=run_id)
        return run.claim_epoch + 1


class OneProcessClaims(BrokenStore):
    breaks = "claims are read and then written, under a lock that one process has"
    killed_by = "concurrency.claim_paused_run.two_processes"

    locks: ClassVar[dict[Any, asyncio.Lock]] = {}

    async def claim_paused_run(self, run_id: str, *, expected_status: str, **given: Any) -> int | None:
        lock = self.locks.setdefault((str(self._engine.url), id(asyncio.get_running_loop())), asyncio.Lock())
        async with lock:
            run = await self.get_run(run_id, **given)
            if run is None or run.status != expected_status or run.cancel_requested:
                return await super().claim_paused_run(run_id, expected_status=expected_status, **given)
            await self.run_sql(TAKE, epoch=run.claim_epoch + 1, run=run_id)
            return run.claim_epoch + 1


class EpochRaisedTwice(BrokenStore):
    breaks = "a claim raises the epoch by two"
    killed_by = "basic.claim_paused_run.next_epoch_each_time"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        epoch = await super().claim_paused_run(run_id, **given)
        if epoch is None:
            return None
        await self.run_sql(
            "UPDATE agent_runs SET claim_epoch = claim_epoch + 1, claimed_epoch = claim_epoch + 1 WHERE id = :run",
            run=run_id,
        )
        return epoch + 1


class ClaimsEveryPause(BrokenStore):
    breaks = "a claim takes a paused run whatever it waits for"
    killed_by = "basic.claim_paused_run.every_paused_status"

    async def claim_paused_run(self, run_id: str, *, expected_status: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        if run is not None and run.status.startswith("waiting_"):
            expected_status = run.status
        return await super().claim_paused_run(run_id, expected_status=expected_status, **given)


class ClaimsTheCancelled(BrokenStore):
    breaks = "a claim does not look at cancel_requested"
    killed_by = "basic.claim_paused_run.not_when_asked_to_cancel"

    claim_paused_run = tampered("claim_paused_run", without_guard("cancel_requested"))


class ClaimWithoutLease(BrokenStore):
    breaks = "a claim does not renew the lease, so a run that waited long is stale at once"
    killed_by = "basic.sweep_stale_runs.claimed_run_is_fresh"

    claim_paused_run = tampered("claim_paused_run", without_assignment("last_progress_at"))


class BlindRetry(BrokenStore):
    breaks = "a claim whose acknowledgement was lost is tried again, and answers that somebody else was faster"
    killed_by = "crash_recovery.claim_paused_run.after_commit_error"

    claim_paused_run = tampered("claim_paused_run", lost="identity")


class ReadsBackClaims(BrokenStore):
    breaks = "a claim whose acknowledgement was lost is answered with the epoch that a read shows"
    killed_by = "crash_recovery.claim_paused_run.nobody_gets_the_epoch_again_after_commit"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        try:
            return await super().claim_paused_run(run_id, **given)
        except StoreOutcomeUnknown:
            run = await self.get_run(run_id)
            return run.claim_epoch if run is not None and run.status == "running" else None


class FoldedTenants(BrokenStore):
    breaks = "claims compare tenants without regard to case"
    killed_by = "basic.claim_paused_run.tenants_are_equal_as_written"

    async def claim_paused_run(self, run_id: str, **given: Any) -> int | None:
        run = await self.get_run(run_id)
        wanted = given.get("tenant_id")
        own = None if run is None else run.tenant_id
        if isinstance(wanted, str) and own is not None and wanted.casefold() == own.casefold():
            given["tenant_id"] = own
        return await super().claim_paused_run(run_id, **given)


# -- submissions ------------------------------------------------------------------------------------------------------


class ValidationOpensWalls(BrokenStore):
    breaks = "submit_and_claim with a validation does not look at the tenant"
    killed_by = "basic.submit_and_claim.walls_beside_other_parameters"

    async def submit_and_claim(self, run_id: str, **given: Any) -> Any:
        if given.get("validate") is not None:
            given.pop("tenant_id", None)
        return await super().submit_and_claim(run_id, **given)


class ValidatesNothing(BrokenStore):
    breaks = "validate is called with an empty document"
    killed_by = "basic.submit_and_claim.validate_sees_the_document"

    async def submit_and_claim(self, run_id: str, *, validate: Any = None, **given: Any) -> Any:
        blind = validate and (lambda document: validate({}))
        return await super().submit_and_claim(run_id, validate=blind, **given)


class ValidatesFirst(BrokenStore):
    breaks = "submit_and_claim validates before it looks whether the run is still to be had"
    killed_by = "basic.submit_and_claim.lost_guard_comes_before_validation"

    async def submit_and_claim(self, run_id: str, *, validate: Any = None, **given: Any) -> Any:
        if validate is not None:
            validate(await self.get_pause_state(run_id) or {})
        return await super().submit_and_claim(run_id, validate=validate, **given)


class RepeatGetsTheEpoch(BrokenStore):
    breaks = "a repeated submission is answered with the epoch that the first one got"
    killed_by = "basic.submit_and_claim.a_repeat_gets_no_epoch"

    async def submit_and_claim(self, run_id: str, **given: Any) -> Any:
        try:
            return await super().submit_and_claim(run_id, **given)
        except StoreOutcomeUnknown:
            run = await self.get_run(run_id)
            return run and run.claim_epoch


class SubmissionIdsFolded(BrokenStore):
    breaks = "submission ids are compared without regard to case"
    killed_by = "basic.submit_and_claim.ids_are_equal_as_written"

    async def submit_and_claim(self, run_id: str, *, submission_id: str | None = None, **given: Any) -> Any:
        folded = submission_id and submission_id.casefold()
        return await super().submit_and_claim(run_id, submission_id=folded, **given)


class SubmissionOutlivesThePause(BrokenStore):
    breaks = "what was submitted and consumed is still there after the next pause"
    killed_by = "checkpointing.consume_submission.must_be_consumed_before_the_next_pause"

    pause_with_event = tampered(
        "pause_with_event",
        without_assignment("submission_id", "submission_digest", "submission_data", "consumption_id"),
    )


class ReleaseKeepsSubmission(BrokenStore):
    breaks = "a claim that is handed back leaves its submission behind, so nobody can submit it again"
    killed_by = "basic.submit_and_claim.leaves_the_submission_beside_the_document"

    release_run_claim = tampered(
        "release_run_claim", without_assignment("submission_id", "submission_digest", "submission_data")
    )


class ReleasesWhatItCreated(BrokenStore):
    breaks = "the creator of a run may hand it back, though it never claimed it"
    killed_by = "basic.release_run_claim.only_a_claim_can_be_released"

    async def release_run_claim(self, run_id: str, *, claim_epoch: int) -> bool:
        released = await super().release_run_claim(run_id, claim_epoch=claim_epoch)
        run = await self.get_run(run_id)
        return released or (run is not None and run.status == "running" and run.claim_epoch == 1)


class ReleaseForgetsCancellation(BrokenStore):
    breaks = "a claim that is handed back takes the request to cancel along"
    killed_by = "basic.release_run_claim.keeps_a_request_to_cancel"

    release_run_claim = tampered("release_run_claim", with_assignment(runs.cancel_requested, False))


class WaitsFromTheFirstPause(BrokenStore):
    breaks = "handing a claim back does not begin the time anew that a run waits"
    killed_by = "basic.sweep_abandoned_runs.waits_again_after_a_release"

    release_run_claim = tampered("release_run_claim", without_assignment("paused_at"))


class ConsumedByEverybody(BrokenStore):
    breaks = "a submission is handed out again under every consumption id"
    killed_by = "checkpointing.consume_submission.handed_out_once"

    async def consume_submission(self, run_id: str, **given: Any) -> Any:
        row = await self.run_sql("SELECT consumption_id FROM agent_runs WHERE id = :run", run=run_id)
        if row is not None and row[0] is not None:
            given["consumption_id"] = row[0]
        return await super().consume_submission(run_id, **given)


class ConsumedByStrangers(BrokenStore):
    breaks = "consume_submission hands out work to an epoch that nobody has"
    killed_by = "fenced_writes.consume_submission.refuses_epoch_nobody_has_yet"

    async def consume_submission(self, run_id: str, *, claim_epoch: int, **given: Any) -> Any:
        run = await self.get_run(run_id)
        return await super().consume_submission(
            run_id, claim_epoch=min(claim_epoch, run.claim_epoch if run else claim_epoch), **given
        )


class ConsumptionDiesWithItsOwner(BrokenStore):
    breaks = "the next owner of a crashed run cannot repeat the consumption of the one before"
    killed_by = "checkpointing.consume_submission.next_owner_repeats_a_consumption"

    async def consume_submission(self, run_id: str, *, claim_epoch: int, consumption_id: str, **given: Any) -> Any:
        own = f"{consumption_id}-{claim_epoch}"[-64:]
        return await super().consume_submission(run_id, claim_epoch=claim_epoch, consumption_id=own, **given)


class ConsumedRowsApart(BrokenStore):
    breaks = "the mark of a consumption is committed before the rows that were made of the submission"
    killed_by = "checkpointing.consume_submission.cut_at_statement_4"

    consume_submission = tampered("consume_submission", commits_before("result", turn=3))
