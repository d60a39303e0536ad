"""The kit in a pytest session: collects its tests, runs them, judges each store and sets the exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from dendrux.lab.seam import engine_of
from dendrux.store.factory import BUILT_IN
from dendrux.testing.probe import probe
from dendrux.testing.scratch import PREFIX
from dendrux.testing.store_kit import report
from dendrux.testing.store_kit.catalogue import catalogue
from dendrux.testing.store_kit.certificate import Certificate, document
from dendrux.testing.store_kit.checking import Checked, Finding, check, unchecked
from dendrux.testing.store_kit.collect import CONTRACT, KIT, KitModule, directories, hang, of_kit, prepare
from dendrux.testing.store_kit.contract import EXAMPLES_MAX, Contract, Settings
from dendrux.testing.store_kit.fixtures import Given, declaration_of
from dendrux.testing.store_kit.messages import no_factory
from dendrux.testing.store_kit.obligations import Declaration, Run, plan
from dendrux.testing.store_kit.shown import shown as shown_of
from dendrux.testing.store_kit.verdict import Examined, Result, judge

ALWAYS: Final = "declaration.fixtures"
"""The contract that no selection leaves out: it checks the fixtures that contracts need which were not selected."""


@dataclass
class Candidate:
    """A store to be judged: what one directory's fixtures make."""

    place: str
    declaration: Declaration | None = None
    unusable: bool = False
    """No store could be made; the first test that tried shows why."""
    results: dict[str, Result] = field(default_factory=dict)

    def record(self, contract: Contract, result: Result) -> None:
        """Note what became of a contract; a failure stays, whatever a repetition says."""
        known = self.results.get(contract.id)
        if known is None or known.outcome != "failed":
            self.results[contract.id] = result


class Kit:
    """The plugin of a session that certifies."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.settings = settings_of(config)
        self.candidates: dict[tuple[str, str], Candidate] = {}
        self.lacks_factory = False
        self.keep_in = config.rootpath
        """Failing programs are written below this folder."""
        self.alone = True
        """Whether a contract can be run again by its name, with the fixtures of a conftest.py."""
        self.certificate = Certificate.asked(config)
        config.stash[KIT] = self

    def contracts(self) -> Sequence[Contract]:
        """The contracts of this version, in the order of the summary: nobody chooses among them."""
        return catalogue()

    # -- collection ---------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(self, path: Path) -> Generator[None, pytest.Collector | None, pytest.Collector | None]:
        """Hang the kit's module below the directories that were asked for."""
        directory = yield
        if directory is not None and path.resolve() in directories(self.config):
            hang(directory)
        return directory

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Know every store before anything is deselected, and keep what no selection may leave out."""
        prepare(items)
        kept = []
        for item in filter(of_kit, items[:]):
            contract = item.stash.get(CONTRACT, None)
            if contract is not None:
                self.candidate(item)
            if contract is None or contract.id == ALWAYS:
                items.remove(item)
                kept.append(item)
        yield
        items[:0] = kept

    def candidate(self, item: pytest.Item) -> Candidate:
        """The store that an item is about."""
        module = item.getparent(KitModule)
        assert module is not None
        assert module.parent is not None
        place = module.parent.nodeid if module.parent.nodeid not in ("", ".") else "."
        variant = getattr(getattr(item, "callspec", None), "id", "")
        return self.candidates.setdefault((place, variant), Candidate(f"{place} [{variant}]" if variant else place))

    # -- tests --------------------------------------------------------------------------------------------------------

    def setup_test(self) -> Callable[..., None]:
        """The one test of a session without a store: it fails and ends the session."""

        def missing_factory(request: pytest.FixtureRequest) -> None:
            self.lacks_factory = True
            request.session.shouldfail = "there is no fixture dendrux_store_factory"
            pytest.fail(no_factory(request), pytrace=False)

        return missing_factory

    def contract_test(self, contract: Contract) -> Callable[..., Any]:
        """The test of a contract."""

        async def test(request: pytest.FixtureRequest) -> None:
            candidate = self.candidate(request.node)
            if candidate.unusable:
                pytest.fail("dendrux_store_factory made no store; the first failure shows why", pytrace=False)
            checked, store = await self.checked(contract, candidate, Given(request))
            self.tell(contract, candidate, checked, store)

        return test

    async def checked(self, contract: Contract, candidate: Candidate, given: Given) -> tuple[Checked, Any]:
        """Check a contract on stores of its own, which are made only when the contract runs."""
        if candidate.declaration is not None:
            planned = plan(contract, candidate.declaration)
            if not isinstance(planned, Run):
                return unchecked(planned), None
        try:
            bench = await given.bench(live="live" in contract.needs)
        except Exception:
            candidate.unusable = candidate.declaration is None
            raise
        try:
            if candidate.declaration is None:
                candidate.declaration = await declaration_of(bench, given.names)
                if self.certificate is not None:
                    found = await probe(await bench.instance())
                    candidate.declaration = replace(candidate.declaration, database=found)
            return await check(contract, bench, candidate.declaration, self.settings), await bench.instance()
        finally:
            await bench.close()

    def tell(self, contract: Contract, candidate: Candidate, checked: Checked, store: Any) -> None:
        """Record what became of a contract, and tell pytest."""
        if checked.finding is not None:
            shown = shown_of(contract, checked.finding.failed)
            candidate.record(contract, Result(outcome="failed", notes=checked.notes, shown=shown))
            pytest.fail(self.failure(contract, candidate, checked.finding, store), pytrace=False)
        if checked.skip is not None:
            candidate.record(contract, Result(outcome="skipped", skip=checked.skip))
            pytest.skip(checked.skip.text)
        candidate.record(contract, Result(outcome="passed", notes=checked.notes))

    def failure(self, contract: Contract, candidate: Candidate, finding: Finding, store: Any) -> str:
        """The report of a failed contract, its program written to a file."""
        if finding.failed is None or candidate.declaration is None:
            return report.failure(contract, finding.text, None, self.again(contract))
        number = list(self.candidates.values()).index(candidate)
        name = contract.id if number == 0 else f"{contract.id}-{number + 1}"
        path = report.written(self.keep_in, name, contract, finding.failed, store=candidate.declaration.name)
        if path is None:
            lost = f"its program could not be written below {report.FAILURES}, so there is no command that replays it"
            return report.failure(contract, finding.text, finding.failed, (lost,))
        if engine_of(store) is None or not finding.failed.replayable:  # dendrux replay makes stores over an engine
            return report.failure(contract, finding.text, finding.failed, self.again(contract))
        base = self.config.invocation_params.dir
        shown = path.relative_to(base) if path.is_relative_to(base) else path
        found = importable(store, base) if self.alone else ""  # the command that certifies imports it as replay does
        command = f"{found}dendrux replay {shown} --store {named(candidate.declaration, store)}"
        return report.failure(contract, finding.text, finding.failed, ("replay it with", f"    {command}"))

    def again(self, contract: Contract) -> tuple[str, ...]:
        """The command that runs one contract on the same fixtures; nothing where nobody can give it."""
        if not self.alone:
            return ()
        where = [str(argument) for argument in self.config.invocation_params.args if is_folder(argument)]
        command = f"{' '.join(['pytest', *where])} -p dendrux.testing.store_kit -k {contract.id}"
        return "run it alone with", f"    {command}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note what the test itself cannot: failures outside it, and skips that are not the kit's."""
        made = yield
        contract = item.stash.get(CONTRACT, None)
        if contract is not None:
            candidate = self.candidate(item)
            if made.failed:
                candidate.record(contract, Result(outcome="failed"))
            elif made.skipped and contract.id not in candidate.results:
                candidate.record(contract, Result(outcome="skipped"))
            # What the store logged about the faults of one program says nothing about the finding and hides it.
            made.sections = [section for section in made.sections if not section[0].startswith("Captured log")]
        return made

    # -- the end ------------------------------------------------------------------------------------------------------

    def examined(self) -> list[tuple[Examined, str]]:
        """Every store of which an instance was made, with its place."""
        return [
            (Examined(candidate.declaration, self.contracts(), candidate.results), candidate.place)
            for candidate in self.candidates.values()
            if candidate.declaration is not None
        ]

    def certified(self) -> bool:
        """Whether there was a store, and each one is certified."""
        examined = self.examined()
        all_made = bool(examined) and len(examined) == len(self.candidates)
        return all_made and all(judge(one).certified for one, _ in examined)

    def pytest_sessionstart(self) -> None:
        """Write a certificate that certifies nothing, before anything runs."""
        if self.certificate is not None:
            try:
                self.certificate.begin()
            except ValueError as wrong:
                raise pytest.UsageError(str(wrong)) from None

    def document(self, *, finished: bool) -> dict[str, Any]:
        """The certificate of this session."""
        unmade = [candidate.place for candidate in self.candidates.values() if candidate.declaration is None]
        remark = None if self.candidates else self.empty()
        return document(self.examined(), unmade, settings=self.settings, finished=finished, remark=remark)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The exit code is the verdict, when nothing else failed."""
        written = self.certificate is None or self.certificate.write(self.document(finished=ended(session)))
        if not written and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if not self.certified() and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the summary."""
        terminalreporter.write_sep("=", report.TITLE)
        for line in self.summary(verbose=self.config.get_verbosity() > 0):
            terminalreporter.write_line(line)
        if self.certificate is not None:
            terminalreporter.write_line(self.certificate.said())

    def summary(self, *, verbose: bool = False) -> list[str]:
        """The lines of the summary."""
        examined = self.examined()
        lines = list(report.summary([one for one, _ in examined], [place for _, place in examined], verbose=verbose))
        for candidate in self.candidates.values():
            if candidate.declaration is None:
                lines += [f"the store of {candidate.place}", "  NOT CERTIFIED (incomplete run): no store was made"]
        if not self.candidates:
            lines.append(f"  NOT CERTIFIED (incomplete run): {self.empty()}")
        return lines

    def empty(self) -> str:
        """Why there is no store at all."""
        return "there is no fixture dendrux_store_factory" if self.lacks_factory else NOTHING


NOTHING: Final = "no contract was collected; name the directory of the conftest.py, or no path at all"


def is_folder(argument: object) -> bool:
    """Whether an argument of the command line names a directory."""
    return Path(str(argument)).is_dir()


def ended(session: pytest.Session) -> bool:
    """Whether nothing broke the session off: an interruption, or an error of pytest itself."""
    return session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.TESTS_FAILED,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    )


def settings_of(config: pytest.Config) -> Settings:
    """What the command line asks for."""
    examples = config.getoption("--dendrux-examples", default=None)
    if examples is not None and examples < 1:
        raise pytest.UsageError(f"--dendrux-examples={examples}: a machine runs at least one example")
    if examples is not None and examples > EXAMPLES_MAX:
        raise pytest.UsageError(f"--dendrux-examples must be at most {EXAMPLES_MAX}")
    return Settings(
        examples=examples,
        seed=config.getoption("--dendrux-seed", default=None),
        matrix=config.getoption("--dendrux-matrix", default="cover"),
    )


def importable(store: Any, base: Path) -> str:
    """What a command line in this folder begins with so that the store's module is found; nothing where it is."""
    name = type(store).__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return ""
    place = Path(file).resolve()
    root = place.parents[len(name.split(".")) - (place.name != "__init__.py")]
    if root == base.resolve() or root.name == "site-packages" or type(store) in BUILT_IN.values():
        return ""
    return f"PYTHONPATH={root.relative_to(base) if root.is_relative_to(base) else root} "


def named(declaration: Declaration, store: Any) -> str:
    """How a command line names this store."""
    engine = engine_of(store)
    database = "sqlite" if engine is None else engine.dialect.name
    if getattr(getattr(engine, "dialect", None), "is_mariadb", False):
        database = "mariadb"
    built_in = type(store) is BUILT_IN.get(database)
    name = database if built_in else f"{declaration.module}:{declaration.name}"
    ours = database == "sqlite" or str(engine.url.database).startswith(PREFIX)
    return name if ours else f"{name} --url URL"
