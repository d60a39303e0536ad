"""Runs: how one begins, what it shows, and its metadata."""

from __future__ import annotations

from dendrux.runtime.values import SeedTrace
from dendrux.testing.store_kit.contract import contract
from dendrux.testing.store_kit.contracts._nasty import ALIKE, DOCUMENTS, TENANTS, wide
from dendrux.testing.store_kit.contracts._races import race
from dendrux.testing.store_kit.contracts._samples import sample
from dendrux.testing.store_kit.contracts._states import OWNED, OWNER, born, claimed, ended, paused
from dendrux_model.operations import CountRuns, CreateRun, GetPiiMapping, GetRun, RequestCancel, UpdateRunMeta
from dendrux_model.outcomes import CLOSED, CONFLICT, INVALID, KEY_CONFLICT, NONE, NOT_FOUND, STALE, Returned
from dendrux_model.programs import Do, Look

FULL = CreateRun(
    run_id="r",
    agent_name="agent",
    input_data={"prompt": "Hello", "n": 1},
    model="large-1",
    strategy="react",
    delegation_level=1,
    tenant_id="t",
    meta={"thread": "a", "n": 1.0},
    idempotency_key="k",
    idempotency_fingerprint="f",
)

sample(
    FULL,
    before=(born("p", tenant_id="t"),),
    agent_name=("Agent", "agent "),
    input_data=(None, {}, {"prompt": "Hello", "n": 1.0}, {"prompt": "Hello", "n": True}, {"prompt": "Hello"}),
    model=(None, "large-2"),
    strategy=(None, "REACT"),
    parent_run_id=("p",),
    delegation_level=(0, 2),
    tenant_id=("T", "t ", ""),
    meta=(None, {"thread": "a", "n": 1}, {"thread": "a", "n": 1.0, "more": None}),
    idempotency_key=(None, "K"),
    idempotency_fingerprint=("F",),
    retry_of_run_id=("p",),
    seed_traces=((SeedTrace(role="user", content="Hello"),),),
    pii_mapping=({}, {"<A>": "Ada"}),
)
sample(GetRun(run_id="r"))
sample(UpdateRunMeta(run_id="r", patch={"thread": "b", "new": [1, 1.0]}))
sample(GetPiiMapping(run_id="r"))

# -- beginning --------------------------------------------------------------------------------------------------------

contract(
    "basic.create_run.starts_running_under_epoch_one",
    "A new run is running, belongs to its creator under epoch 1, and shows every field it was given.",
    born("p", tenant_id="t"),
    ended("p"),
    Do(FULL, expect=Returned({"run_id": "r", "outcome": "created", "status": "running", "claim_epoch": 1})),
    Do(GetRun(run_id="r"), expect=Returned({"status": "running", "claim_epoch": 1, "strategy": "react"})),
    Do(
        CreateRun(run_id="again", agent_name="agent", tenant_id="t", retry_of_run_id="p"),
        expect=Returned({"outcome": "created"}),
    ),
)
contract(
    "basic.create_run.what_is_left_out_is_absent",
    "What was not given reads as absent, and not as empty.",
    born(),
    Do(GetRun(run_id="r"), expect=Returned({"tenant_id": None, "input_data": None, "meta": None, "answer": None})),
    Do(CreateRun(run_id="empty", agent_name="agent", tenant_id="", input_data={}, meta={})),
    Do(GetRun(run_id="empty"), expect=Returned({"tenant_id": ""})),
)
contract(
    "basic.create_run.documents_come_back_exactly",
    "Input and meta come back with the same members in the same order, of the same types, whatever they hold.",
    *(born(f"r{i}", input_data=document, meta=document) for i, document in enumerate(DOCUMENTS)),
    cause="The engine's JSON type or a JSON column re-encodes what is stored: keep the text of the document.",
)
contract(
    "basic.create_run.ids_are_equal_as_written",
    "Runs whose ids or names differ in case, accents, spaces or form are different runs.",
    *(born(name, name, tenant_id=name, idempotency_key=name) for name in ALIKE),
    *(Do(CountRuns(agent_name=name), expect=Returned(1)) for name in ALIKE),
    cause="A collation folds case, accents or trailing spaces: give identifiers a binary collation without padding.",
)
contract(
    "basic.create_run.longest_names_fit",
    "Names of the greatest length are kept whole, also when every character takes four bytes.",
    born("r" * 48, "a" * 239, tenant_id="t" * 239, idempotency_key="k" * 239, idempotency_fingerprint="f" * 64),
    Do(
        CreateRun(
            run_id=wide(48),
            agent_name=wide(239),
            tenant_id=wide(239),
            idempotency_key=wide(239),
            idempotency_fingerprint=wide(64),
            model=wide(255),
            strategy="s" * 100,
        )
    ),
    Do(GetRun(run_id=wide(48), tenant_id=wide(239)), expect=Returned({"model": wide(255)})),
    cause="A column is too short, or counts bytes where the contract counts code points.",
)
contract(
    "basic.create_run.tenants_are_kept_as_written",
    "Every tenant is stored as it was written; untenanted and the empty tenant are two.",
    *(born(f"r{i}", tenant_id=tenant) for i, tenant in enumerate(TENANTS)),
)

# -- once per key -----------------------------------------------------------------------------------------------------

KEYED = CreateRun(run_id="first", agent_name="agent", tenant_id="t", idempotency_key="k", idempotency_fingerprint="f")
AGAIN = CreateRun(run_id="second", agent_name="agent", tenant_id="t", idempotency_key="k", idempotency_fingerprint="f")
ACTIVE = Returned({"run_id": "first", "outcome": "existing_active", "claim_epoch": 0})
CREATED = Returned({"outcome": "created", "claim_epoch": 1})

contract(
    "basic.create_run.key_finds_the_open_run",
    "A second run under a known key is not made: the caller learns of the first one and owns nothing of it.",
    Do(KEYED),
    Do(AGAIN, expect=ACTIVE),
    paused("first"),
    Do(AGAIN, expect=ACTIVE),
    claimed("first"),
    Do(AGAIN, expect=ACTIVE),
    cause="The unique key does not cover (tenant scope, idempotency key), or the insert was not absorbed by it.",
)
contract(
    "basic.create_run.key_finds_the_ended_run",
    "A key stays taken after its run has ended.",
    Do(KEYED),
    ended("first"),
    Do(AGAIN, expect=Returned({"run_id": "first", "outcome": "existing_terminal", "status": "success"})),
)
contract(
    "basic.create_run.other_fingerprint_is_refused",
    "A known key with another fingerprint is refused, while the first run is open and after its end.",
    Do(KEYED),
    *(
        Do(
            CreateRun(
                run_id="second", agent_name="agent", tenant_id="t", idempotency_key="k", idempotency_fingerprint=other
            ),
            expect=KEY_CONFLICT,
        )
        for other in ("F", "f ", "g", None)
    ),
    ended("first"),
    Do(
        CreateRun(run_id="second", agent_name="agent", tenant_id="t", idempotency_key="k", idempotency_fingerprint="g"),
        expect=KEY_CONFLICT,
    ),
)
contract(
    "basic.create_run.no_fingerprint_twice_is_one_request",
    "A key without a fingerprint is found again without one or with the empty one, and refused with any other.",
    born("first", idempotency_key="k"),
    Do(CreateRun(run_id="second", agent_name="agent", idempotency_key="k"), expect=ACTIVE),
    Do(CreateRun(run_id="second", agent_name="agent", idempotency_key="k", idempotency_fingerprint=""), expect=ACTIVE),
    Do(CreateRun(run_id="first", agent_name="agent", idempotency_key="k", idempotency_fingerprint=""), expect=CREATED),
    Do(
        CreateRun(run_id="second", agent_name="agent", idempotency_key="k", idempotency_fingerprint="f"),
        expect=KEY_CONFLICT,
    ),
)
contract(
    "basic.create_run.key_belongs_to_its_tenant",
    "Tenants do not share keys, however alike their names are.",
    *(
        Do(CreateRun(run_id=f"r{i}", agent_name="agent", tenant_id=tenant, idempotency_key="k"), expect=CREATED)
        for i, tenant in enumerate(TENANTS[1:])
    ),
    cause="The tenant in the unique key is compared by a folding or padding collation.",
)
contract(
    "basic.create_run.untenanted_and_empty_tenant_share_keys",
    "For keys, and for nothing else, runs without a tenant and runs of the empty tenant are one scope.",
    born("first", tenant_id=None, idempotency_key="k"),
    Do(CreateRun(run_id="second", agent_name="agent", tenant_id="", idempotency_key="k"), expect=ACTIVE),
    Do(GetRun(run_id="first", tenant_id=""), expect=NONE),
    cause="The scope of a key is NULL for an absent tenant, and NULLs never clash: store it as text, never NULL.",
)
contract(
    "basic.create_run.own_id_comes_before_the_key",
    "A creator who repeats its own run_id is told that it created the run, also when it gave a key.",
    Do(KEYED, expect=CREATED),
    Do(KEYED, expect=CREATED),
    paused("first"),
    Do(KEYED, expect=Returned({"outcome": "created", "status": "waiting_human_input", "claim_epoch": 1})),
)
contract(
    "basic.create_run.run_id_of_another_tenant_conflicts",
    "A run_id that another tenant uses is a write conflict, and nothing of that run shows.",
    born(tenant_id="t"),
    Do(CreateRun(run_id="r", agent_name="agent", tenant_id="u"), expect=CONFLICT),
    Do(CreateRun(run_id="r", agent_name="agent"), expect=CONFLICT),
)

# -- families ---------------------------------------------------------------------------------------------------------

CHILD = CreateRun(run_id="child", agent_name="agent", tenant_id="t", parent_run_id="r", delegation_level=1)

contract(
    "basic.create_run.child_of_an_open_parent",
    "A running or paused parent of the same tenant can have children, one level below it.",
    born(tenant_id="t"),
    Do(CHILD, expect=CREATED),
    paused(),
    Do(
        CreateRun(run_id="child-2", agent_name="agent", tenant_id="t", parent_run_id="r", delegation_level=1),
        expect=CREATED,
    ),
    Do(
        CreateRun(run_id="grandchild", agent_name="agent", tenant_id="t", parent_run_id="child", delegation_level=2),
        expect=CREATED,
    ),
)
contract(
    "basic.create_run.level_must_fit_the_parent",
    "A child's level is its parent's plus one, and any other is refused.",
    born(),
    *(
        Do(CreateRun(run_id="child", agent_name="agent", parent_run_id="r", delegation_level=level), expect=INVALID)
        for level in (0, 2)
    ),
)
contract(
    "basic.create_run.relatives_must_exist_in_the_tenant",
    "A parent or retried run that does not exist, or belongs to another tenant, is not found.",
    born("other", tenant_id="T"),
    born("none"),
    *(
        Do(
            CreateRun(run_id="child", agent_name="agent", tenant_id="t", parent_run_id=name, delegation_level=1),
            expect=NOT_FOUND,
        )
        for name in ("nowhere", "other", "none")
    ),
    *(
        Do(CreateRun(run_id="child", agent_name="agent", tenant_id="t", retry_of_run_id=name), expect=NOT_FOUND)
        for name in ("nowhere", "other", "none")
    ),
)
contract(
    "basic.create_run.no_child_of_an_ended_parent",
    "A run that has ended can have no new child.",
    born(tenant_id="t"),
    ended(),
    Do(CHILD, expect=CLOSED),
    cause="The parent's status is not looked at in the transaction that inserts the child.",
)
contract(
    "basic.create_run.no_child_of_a_parent_asked_to_cancel",
    "A run whose cancellation was asked for can have no new child; children it has are still found by their id.",
    born(tenant_id="t"),
    Do(CHILD),
    Do(RequestCancel(run_id="r")),
    Do(
        CreateRun(run_id="child-2", agent_name="agent", tenant_id="t", parent_run_id="r", delegation_level=1),
        expect=CLOSED,
    ),
    Do(CHILD, expect=CREATED),
)
contract(
    "fenced_writes.create_run.parent_held_under_its_epoch",
    "Who names the parent's epoch makes a child only while it owns the parent.",
    *OWNED,
    *(
        Do(
            CreateRun(
                run_id="child", agent_name="agent", parent_run_id="r", delegation_level=1, parent_claim_epoch=epoch
            ),
            expect=STALE,
        )
        for epoch in (OWNER - 1, OWNER + 1)
    ),
    Do(
        CreateRun(run_id="own", agent_name="agent", parent_run_id="r", delegation_level=1, parent_claim_epoch=OWNER),
        expect=CREATED,
    ),
    paused(),
    Do(
        CreateRun(run_id="late", agent_name="agent", parent_run_id="r", delegation_level=1, parent_claim_epoch=OWNER),
        expect=STALE,
    ),
    ended(),
    Do(
        CreateRun(run_id="late", agent_name="agent", parent_run_id="r", delegation_level=1, parent_claim_epoch=OWNER),
        expect=CLOSED,
    ),
    group="fenced_writes",
    cause="The parent's epoch is not compared in the transaction that inserts the child.",
)

# -- metadata ---------------------------------------------------------------------------------------------------------

contract(
    "basic.update_run_meta.merges_top_level_members",
    "A patch replaces the members it names, keeps the others in place, and adds new ones at the end.",
    born(meta={"a": {"x": 1}, "b": 2, "c": [1]}),
    Do(UpdateRunMeta(run_id="r", patch={"d": 4, "b": None, "a": {"y": 1.0}}), expect=NONE),
    Look(),
    Do(UpdateRunMeta(run_id="r", patch={"a": True})),
    cause="The patch is merged deep, or a null member is taken for a removal.",
)
contract(
    "basic.update_run_meta.starts_from_nothing",
    "A run without meta gets the patch as its meta; an empty patch changes nothing, not even a clock.",
    born(),
    Do(UpdateRunMeta(run_id="r", patch={})),
    Look(),
    Do(UpdateRunMeta(run_id="r", patch={"a": 1})),
)
contract(
    "basic.update_run_meta.documents_come_back_exactly",
    "Patches of any keys and values leave the rest of meta as it was, byte for byte.",
    born(meta=DOCUMENTS[1]),
    *(
        step
        for document in DOCUMENTS[2:]
        for step in (Do(UpdateRunMeta(run_id="r", patch=document)), Do(GetRun(run_id="r")))
    ),
    *(Do(UpdateRunMeta(run_id="r", patch={"nested": document})) for document in DOCUMENTS),
    cause="The JSON patch expression rewrites numbers, order or text of the document: return None for such patches.",
)
contract(
    "basic.update_run_meta.also_on_paused_and_ended_runs",
    "Meta without an epoch can be written at any time: it is bookkeeping, and moves no lease.",
    born(),
    paused(),
    Do(UpdateRunMeta(run_id="r", patch={"a": 1}), expect=NONE),
    Look(),
    ended(),
    Do(UpdateRunMeta(run_id="r", patch={"b": 2}), expect=NONE),
)

# -- races ------------------------------------------------------------------------------------------------------------

race(
    "create_run.one_run_per_key",
    "Of two creations under one key at once, one makes the run and the other finds it.",
    KEYED,
    AGAIN,
    before=(),
    after=(Do(CountRuns(agent_name="agent"), expect=Returned(1)),),
    cause="The key is looked up before the insert and not protected by it: let the unique key decide.",
)
race(
    "create_run.one_run_per_id",
    "Of two creations with one run_id and different content at once, one makes the run and the other conflicts.",
    CreateRun(run_id="r", agent_name="agent", input_data={"n": 1}),
    CreateRun(run_id="r", agent_name="agent", input_data={"n": 1.0}),
    before=(),
    cause="A violated primary key is reported as an error of the database, or taken for a repeat without comparing.",
)
race(
    "create_run.no_child_behind_a_cancellation",
    "A child made while its parent is asked to cancel is either there first, or refused.",
    CreateRun(run_id="child", agent_name="agent", parent_run_id="r", delegation_level=1),
    RequestCancel(run_id="r"),
    before=(born(),),
    cause="The parent's row is read without being held until the child is committed.",
)
contract(
    "basic.create_run.looks_for_both_relatives_first",
    "A run that is retried must exist before anything is said about the level under a parent.",
    born(),
    Do(
        CreateRun(run_id="child", agent_name="agent", parent_run_id="r", delegation_level=5, retry_of_run_id="gone"),
        expect=NOT_FOUND,
    ),
    cause="The level is compared before the retried run is looked for.",
)
race(
    "create_run.no_child_behind_the_end",
    "A child made while its parent ends is either there first, or refused.",
    CreateRun(run_id="child", agent_name="agent", parent_run_id="r", delegation_level=1, parent_claim_epoch=1),
    ended().operation,
    before=(born(),),
    cause="The parent's row is read without being held until the child is committed.",
)
race(
    "update_run_meta.no_lost_update",
    "Two patches at once both stay.",
    UpdateRunMeta(run_id="r", patch={"a": 1, "both": "first"}),
    UpdateRunMeta(run_id="r", patch={"b": 2, "both": "second"}),
    before=(born(meta={"kept": 1.0}),),
    cause="Meta is read, merged and written without holding the run: hold the row first, or patch inside the update.",
)
race(
    "update_run_meta.unusual_keys_are_not_lost",
    "Two patches at once whose keys no expression can take both stay.",
    UpdateRunMeta(run_id="r", patch={"a key": 1e16}),
    UpdateRunMeta(run_id="r", patch={"another.key\u0000": -0.0}),
    before=(born(meta={"kept": 1.0}),),
    cause="Meta is read, merged and written without holding the run.",
)
