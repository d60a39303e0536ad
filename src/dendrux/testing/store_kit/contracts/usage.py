"""What model calls cost: usage rows and full interactions."""

from __future__ import annotations

from dataclasses import replace

from dendrux.runtime.values import UsageStats
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._nasty import ALIKE, DOCUMENTS, LONG, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import born, ended, paused
from dendrux_model.operations import GetLLMInteractions, SaveLLMInteraction, SaveUsage
from dendrux_model.outcomes import CONFLICT, NONE, STALE
from dendrux_model.programs import Do, Look

TOKENS = UsageStats(
    input_tokens=100,
    output_tokens=50,
    total_tokens=150,
    cost_usd=0.0125,
    cache_read_input_tokens=10,
    cache_creation_input_tokens=5,
    reasoning_tokens=7,
    cost_source="list",
)
OTHER_TOKENS = (
    replace(TOKENS, input_tokens=101),
    replace(TOKENS, output_tokens=51),
    replace(TOKENS, total_tokens=151),
    replace(TOKENS, cost_usd=None),
    replace(TOKENS, cost_usd=0.012501),
    replace(TOKENS, cache_read_input_tokens=None),
    replace(TOKENS, cache_creation_input_tokens=0),
    replace(TOKENS, reasoning_tokens=8),
)
ROW = SaveUsage(
    run_id="r",
    iteration_index=2,
    usage=TOKENS,
    model="large-1",
    provider="acme",
    duration_ms=900,
    meta={"n": 1},
    usage_id="u",
)
FULL = SaveLLMInteraction(
    run_id="r",
    iteration_index=2,
    usage=TOKENS,
    model="large-1",
    provider="acme",
    duration_ms=900,
    semantic_request={"n": 1},
    semantic_response={"n": 2},
    provider_request={"n": 3},
    provider_response={"n": 4},
    guardrail_findings={"n": 5},
    interaction_id="i",
)

sample(
    ROW,
    iteration_index=(0, 3),
    usage=OTHER_TOKENS,
    model=(None, "Large-1"),
    provider=(None, "Acme"),
    duration_ms=(None, 901),
    meta=(None, {}, {"n": 1.0}),
)
sample(
    FULL,
    iteration_index=(0, 3),
    usage=OTHER_TOKENS,
    model=(None, "Large-1"),
    provider=(None, "Acme"),
    duration_ms=(None, 901),
    semantic_request=(None, {"n": 1.0}),
    semantic_response=(None, {"n": 2.0}),
    provider_request=(None, {"n": 3.0}),
    provider_response=(None, {"n": 4.0}),
    guardrail_findings=(None, {"n": 5.0}),
)
sample(GetLLMInteractions(run_id="r"))


def interaction(number: int, iteration_index: int = 0, usage: UsageStats = TOKENS) -> SaveLLMInteraction:
    """A model call with a number."""
    return SaveLLMInteraction(run_id="r", iteration_index=iteration_index, usage=usage, interaction_id=f"i{number}")


contract(
    "basic.save_llm_interaction.read_by_iteration",
    "Model calls are read by iteration, all of them or those of one.",
    born(),
    *(Do(interaction(i, iteration), expect=NONE) for i, iteration in enumerate((2, 0, 1, 0))),
    Do(GetLLMInteractions(run_id="r", iteration_index=0)),
    Do(GetLLMInteractions(run_id="r", limit=2, offset=1)),
    Do(GetLLMInteractions(run_id="r", iteration_index=9)),
    Do(FULL),
    cause="Iteration 0 is taken for one that was not given.",
)
contract(
    "basic.save_llm_interaction.names_are_equal_as_written",
    "Ids that differ in case, accents, spaces or form are different, of interactions and of usage rows.",
    born(),
    *(
        step
        for i, name in enumerate((*ALIKE, wide(48)))
        for step in (
            Do(SaveLLMInteraction(run_id="r", iteration_index=i, usage=TOKENS, interaction_id=name), expect=NONE),
            Do(SaveUsage(run_id="r", iteration_index=i, usage=TOKENS, usage_id=name), expect=NONE),
        )
    ),
    cause="A collation folds case, accents or trailing spaces: give identifiers a binary collation without padding.",
)
contract(
    "basic.save_llm_interaction.documents_come_back_exactly",
    "Requests, answers and findings come back with the same members in the same order, of the same types.",
    born(),
    *(
        Do(
            SaveLLMInteraction(
                run_id="r",
                iteration_index=i,
                usage=UsageStats(),
                interaction_id=f"i{i}",
                semantic_request=document,
                semantic_response=document,
                provider_request=document,
                provider_response=document,
                guardrail_findings=document,
                model=wide(255),
                provider=wide(255),
            )
        )
        for i, document in enumerate((*DOCUMENTS, {"text": LONG}))
    ),
)
contract(
    "basic.save_llm_interaction.cost_has_six_places",
    "A cost is rounded to six decimal places, half to even; absent is not zero.",
    born(),
    *(
        Do(interaction(i, i, UsageStats(cost_usd=cost, input_tokens=2**40 + i)))
        for i, cost in enumerate(
            (
                None,
                0,
                0.0,
                0.1,
                0.0000005,
                0.0000015,
                0.0000025,
                0.0000024999,
                0.00000250001,
                3,
                99999999999.5,
                123456.654321,
                1e-9,
            )
        )
    ),
    cause="The cost is rounded by the database, which has other rules: round before storing.",
)
contract(
    "basic.save_llm_interaction.counts_that_were_not_given",
    "Token counts that were not given read as absent where the record allows it, and zero stays zero.",
    born(),
    Do(interaction(0, 0, UsageStats())),
    Do(interaction(1, 1, UsageStats(cache_read_input_tokens=0, cache_creation_input_tokens=0, reasoning_tokens=0))),
)
contract(
    "basic.save_usage.late_bookkeeping",
    "Usage and interactions without an epoch are taken at any time, and change no totals; under an epoch they are not.",
    born(),
    paused(),
    Do(ROW, expect=NONE),
    Do(FULL, expect=NONE),
    ended(),
    Look(),
    Do(replace(ROW, usage_id="late"), expect=NONE),
    Do(replace(FULL, interaction_id="late"), expect=NONE),
    Do(replace(ROW, usage_id="later", claim_epoch=1), expect=STALE),
    Do(replace(FULL, interaction_id="later", claim_epoch=1), expect=STALE),
)
for method, first in (("save_usage", ROW), ("save_llm_interaction", FULL)):
    contract(
        f"retry_ids.{method}.cost_is_compared_after_rounding",
        "Costs that are stored as the same amount are the same content, and so is any source of the cost.",
        born(),
        Do(first, expect=NONE),
        Look(),
        *(
            Do(replace(first, usage=usage), expect=NONE)
            for usage in (
                replace(TOKENS, cost_usd=0.0125000001),
                replace(TOKENS, cost_usd=0.0124996),
                replace(TOKENS, cost_source=None),
                replace(TOKENS, cost_source="guess"),
            )
        ),
        Do(replace(first, usage=replace(TOKENS, cost_usd=0.0125006)), expect=CONFLICT),
        group="retry_ids",
        cause="The digest is taken before the cost is rounded, or takes cost_source in.",
    )

race(
    "save_llm_interaction.same_call_twice",
    "One model call sent twice at once is stored once, and both callers are told so.",
    FULL,
    FULL,
    before=(born(),),
    after=(Do(FULL, expect=NONE),),
    cause="A repeat that meets its own first call reports a conflict with itself: look again once the key clashed.",
)
