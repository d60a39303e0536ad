"""What a store declares: its deployment, the methods behind its promises, and the fixtures to check them with."""

from __future__ import annotations

import warnings

from dendrux.errors import StoreCapabilityError
from dendrux.store import validate_capabilities
from dendrux.testing.store_kit.contract import NotKept, Situation, contract
from dendrux.testing.store_kit.obligations import Declaration, missing
from dendrux.vocabulary import CAPABILITIES, DEPLOYMENTS


async def deployment(situation: Situation) -> None:
    """The deployment says which contracts apply, so there must be one."""
    declared = getattr(situation.capabilities, "deployment", None)
    if declared not in DEPLOYMENTS:
        raise NotKept(
            f"the store declares deployment={declared!r}; it must be one of {', '.join(DEPLOYMENTS)}. In its __init__: "
            f'self.capabilities = replace(self.capabilities, deployment="{DEPLOYMENTS[1]}")'
        )


async def methods(situation: Situation) -> None:
    """Methods and keyword parameters, as an application validates them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a missing deployment has a contract of its own
        try:
            validate_capabilities(await situation.bench.instance())
        except StoreCapabilityError as refused:
            if refused.capability != "deployment":
                raise NotKept(str(refused)) from None


async def fixtures(situation: Situation) -> None:
    """Every fixture that the declaration obliges."""
    declared = situation.capabilities
    lacking = missing(
        Declaration(
            name="",
            module="",
            deployment=getattr(declared, "deployment", None),
            capabilities=tuple(name for name in CAPABILITIES if getattr(declared, name, False) is True),
            fixtures=situation.fixtures,
        )
    )
    if lacking:
        raise NotKept("\n".join(lacking.values()))


contract(
    "declaration.deployment",
    "The store says how many processes may share its data.",
    group="declaration",
    check=deployment,
    cause="The constructor does not set a deployment after super().__init__(...).",
)
contract(
    "declaration.methods",
    "Each declared capability has the methods it needs, with their named keyword parameters.",
    group="declaration",
    check=methods,
    cause="An override takes *args and **kwargs, or lacks a keyword-only parameter of the base method.",
)
contract(
    "declaration.fixtures",
    "Everything that is declared can be checked: the fixtures it takes are there.",
    group="declaration",
    check=fixtures,
)
