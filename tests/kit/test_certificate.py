"""The certificate: what it says, when it is written, and what must never be in it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dendrux.cli import main
from dendrux.store import SQLiteStateStore
from dendrux.testing.store_kit import causes, plugin
from dendrux.testing.store_kit.contract import GROUPS
from kit import broken, tiny
from kit.conftest import Project, summary, verdict
from kit.test_verdict import SHARED, without

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/reference/certificate.schema.json").read_text())
CHECKER = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
ASK = "--dendrux-certificate=c.json"
SECRET = "secret-of-somebody-else"


class Outside(HTMLParser):
    """Collects whatever makes a page fetch or run something, and the elements that are left open."""

    VOID = frozenset({"meta", "br", "link", "img"})
    OPTIONAL = frozenset({"html"})

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag in ("script", "link", "img", "iframe", "object") or names & {"src", "href", "onclick", "onload"}:
            self.found.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page(path: Path) -> str:
    """The words of a page, which needs nothing from elsewhere and closes what it opens."""
    text = path.read_text()
    looked = Outside()
    looked.feed(text)
    assert (looked.found, looked.open) == ([], [])
    assert not re.search(r"@import|url\(", text)
    assert "prefers-color-scheme: dark" in text
    return " ".join(looked.words)


def read(folder: Path, name: str = "c.json") -> Any:
    """The document, held against its schema."""
    found = json.loads((folder / name).read_text())
    CHECKER.validate(found)
    return found


def only(found: Any) -> Any:
    """The only store of a document."""
    (store,) = found["stores"]
    return store


# -- what it says -----------------------------------------------------------------------------------------------------


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        CHECKER.validate({"format": 1})


def test_a_certified_store(project: Project) -> None:
    project.conftest(SHARED)
    result = project.certify(ASK)
    said = summary(result)
    assert said[-1] == "certificate: c.json, and as a page c.html"
    found = read(project.pytester.path)
    store = only(found)
    assert (found["finished"], found["certified"], found["remark"]) == (True, True, None)
    assert store["verdict"]["text"] == said[-2].strip()
    assert store["verdict"]["certified"]
    assert (store["class"], store["module"], store["place"]) == ("Store", "conftest", ".")
    assert [group["name"] for group in store["groups"]] == list(GROUPS)
    counts = {group["name"]: (group["passed"], group["skipped"], group["not_run"]) for group in store["groups"]}
    assert counts["basic"] == (3, 1, 0)
    assert counts["live_updates"] == (0, 0, 0)
    assert (store["database"], store["failures"]) == (None, [])
    words = page(project.pytester.path / "c.html")
    assert store["verdict"]["text"] in words
    assert all(contract["id"] in words for contract in store["contracts"])
    assert result.ret == 0


def test_without_the_option_the_summary_is_as_it_was_and_nothing_is_written(project: Project) -> None:
    project.conftest(SHARED)
    assert verdict(project.certify()).startswith("CERTIFIED with caveats")
    assert not list(project.pytester.path.glob("*.html"))


def test_every_skip_has_its_reason(project: Project) -> None:
    more = "@pytest.fixture(autouse=True)\ndef strange(request):\n    if 'basic.two' in request.node.name: pytest.skip('a secret')\n"
    project.conftest(SHARED, fixtures=without("injector"), more=more)
    assert project.certify(ASK).ret == 1
    text = (project.pytester.path / "c.json").read_text()
    contracts = {contract["id"]: contract for contract in only(read(project.pytester.path))["contracts"]}
    skipped = {name: c["reason"] for name, c in contracts.items() if c["outcome"] == "skipped"}
    assert skipped["recovery.mark"] == "recovery is not declared"
    assert skipped["crash_recovery.cut"] == "there is no fixture dendrux_fault_injector"
    assert skipped["basic.two"] == "something outside of the kit skipped it"
    assert all(skipped.values())
    assert contracts["retry_ids.usage"]["skipped_because"] == "it cannot be seen"
    assert all(c["reason"] is None for c in contracts.values() if c["outcome"] != "skipped")
    assert "a secret" not in text


def test_several_stores(project: Project) -> None:
    for name, declared in (("one", SHARED), ("two", "deployment=None")):
        project.conftest(declared, folder=project.pytester.mkdir(name))
    project.certify("one", "two", ASK)
    found = read(project.pytester.path)
    assert [(store["place"], store["verdict"]["certified"]) for store in found["stores"]] == [
        ("one", True),
        ("two", False),
    ]
    assert not found["certified"]


# -- when it is written -----------------------------------------------------------------------------------------------


def test_a_selection_is_incomplete(project: Project) -> None:
    project.conftest(SHARED)
    assert project.certify(ASK, "-k", "fenced").ret == 1
    store = only(read(project.pytester.path))
    assert store["verdict"]["incomplete"]
    assert sum(contract["outcome"] == "not_run" for contract in store["contracts"]) == 12


def test_an_interrupted_session(project: Project) -> None:
    stop = "async def stop(situation): raise KeyboardInterrupt\n"
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.tiny('basic.stop', check=stop)]", more=stop)
    project.pytester.runpytest_subprocess("-p", "dendrux.testing.store_kit", ASK)
    found = read(project.pytester.path)
    assert (found["finished"], found["certified"]) == (False, False)
    assert only(found)["verdict"]["text"].startswith("NOT CERTIFIED (incomplete run): ")
    assert "did not come to its end" in page(project.pytester.path / "c.html")


def test_a_session_that_dies_leaves_no_older_certificate(project: Project) -> None:
    project.conftest(SHARED)
    assert project.certify(ASK).ret == 0
    die = "async def die(situation):\n    import os\n    os._exit(9)\n"
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.tiny('basic.die', check=die)]", more=die)
    project.pytester.runpytest_subprocess("-p", "dendrux.testing.store_kit", ASK)
    found = read(project.pytester.path)
    assert (found["finished"], found["certified"], found["stores"]) == (False, False, [])
    assert "not certified" in page(project.pytester.path / "c.html")


@pytest.mark.parametrize(
    ("body", "place"), [("def __init__(self, **declared): raise RuntimeError('no database')", "."), (None, None)]
)
def test_no_store(project: Project, body: str | None, place: str | None) -> None:
    if body is not None:
        project.conftest(SHARED, body=body)
    assert project.certify(ASK).ret == 1
    found = read(project.pytester.path)
    assert [store["place"] for store in found["stores"]] == [place] * (place is not None)
    assert (found["finished"], found["certified"]) == (True, False)
    assert found["remark"] == (None if place else "there is no fixture dendrux_store_factory")
    assert "no database" not in json.dumps(found)
    assert "NOT CERTIFIED" in page(project.pytester.path / "c.html")


def test_the_certificate_of_another_directory(project: Project) -> None:
    project.conftest(SHARED)
    project.pytester.mkdir("out")
    assert project.certify("--dendrux-certificate=out/mine.txt").ret == 0
    assert read(project.pytester.path / "out", "mine.txt")["certified"]
    assert page(project.pytester.path / "out" / "mine.html")


# -- when it cannot be written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("missing/c.json", "the certificate missing/c.json cannot be written: No such file or directory"),
        ("folder.json", "the certificate folder.json cannot be written: Is a directory"),
        ("c.html", "--dendrux-certificate=c.html: name a file such as certificate.json"),
        ("c", "--dendrux-certificate=c: name a file such as certificate.json"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_before_anything_runs(project: Project, given: str, message: str) -> None:
    project.conftest(SHARED)
    project.pytester.mkdir("folder.json")
    result = project.certify("--dendrux-certificate", given)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}*"])
    assert "basic.one" not in str(result.stdout)


def test_a_file_that_cannot_be_written_any_more(project: Project) -> None:
    gone = "async def gone(situation):\n    import shutil\n    shutil.rmtree('out')\n"
    project.conftest(SHARED, catalogue="[*tiny.TINY, tiny.tiny('basic.gone', check=gone)]", more=gone)
    project.pytester.mkdir("out")
    result = project.certify("--dendrux-certificate=out/c.json")
    assert verdict(result) == "the certificate out/c.json cannot be written: No such file or directory"
    assert summary(result)[-2].strip().startswith("CERTIFIED with caveats")
    assert result.ret == 1


# -- what must not be in it -------------------------------------------------------------------------------------------


def test_no_text_of_a_store_or_a_driver(project: Project) -> None:
    raising = f"async def check(situation):\n    raise RuntimeError('{SECRET}')\n"
    failing = f"async def fails(situation):\n    raise tiny.NotKept('{SECRET}')\n"
    catalogue = "[*tiny.TINY, tiny.tiny('basic.a', check=check), tiny.tiny('basic.b', check=fails)]"
    project.conftest(SHARED, catalogue=catalogue, more=raising + failing)
    project.certify(ASK)
    found = read(project.pytester.path)
    assert [failure["contract"] for failure in only(found)["failures"]] == ["basic.a", "basic.b"]
    for name in ("c.json", "c.html"):
        assert SECRET not in (project.pytester.path / name).read_text()


class Indiscreet(SQLiteStateStore):
    """Shows what nobody asked for: text of somebody else, in a value and as an error."""

    async def get_run(self, run_id: str, **scope: object) -> object:  # type: ignore[override]
        run = await super().get_run(run_id, **scope)  # type: ignore[arg-type]
        if run is not None:
            object.__setattr__(run, "answer", SECRET)
        return run

    async def claim_paused_run(self, run_id: str, **given: object) -> object:  # type: ignore[override]
        raise type(SECRET.replace("-", "_"), (Exception,), {"code": SECRET})(SECRET)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plugin, "catalogue", lambda: broken.CATALOGUE)
    return tmp_path


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_answers_show_only_what_the_kit_wrote(here: Path, jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", f"{__name__}:Indiscreet", "--certificate", "c.json", "--jobs", jobs]) == 1
    assert SECRET in capsys.readouterr().out  # the terminal shows it: it is the author's own
    failures = {failure["contract"]: failure for failure in only(read(here))["failures"]}
    looked = failures["basic.pause"]["program"][-1]
    assert looked["wrong"]
    assert "'answer': (text that is not the kit's)" in looked["answered"] or "raised" in looked["answered"]
    shown = failures["retry_ids.create"]
    assert shown["differs_at"] == "answer"
    assert shown["program"][-1]["call"] == "get_run(run_id='r')"
    assert "'answer': None" in shown["program"][-1]["allowed"]
    assert "'answer': (text that is not the kit's)" in shown["program"][-1]["answered"]
    for name in ("c.json", "c.html"):
        assert SECRET not in (here / name).read_text()


# -- of a real store --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_broken_store_with_its_program(here: Path, jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "kit.broken:Unfenced", "--certificate", "c.json", "--jobs", jobs]) == 1
    said = capsys.readouterr().out
    assert "certificate: c.json, and as a page c.html" in said.splitlines()
    store = only(read(here))
    (failure,) = store["failures"]
    assert failure["contract"] == "fenced_writes.save_trace"
    assert failure["cause"] == causes.SWALLOWED
    assert [row["step"] for row in failure["program"]] == [1, 2, 3, 4]
    last = failure["program"][-1]
    assert last == {
        "step": 4,
        "call": "save_trace(run_id='r', role='user', content_text='late', order_index=0, claim_epoch=1)",
        "allowed": "-> refused stale_claim",
        "answered": "-> None",
        "wrong": True,
    }
    words = page(here / "c.html")
    assert last["call"] in words
    assert "the model allows" in words
    assert store["fault_cells"] == {"covered": 1, "known": 1, "not_covered": []}
    database = store["database"]
    assert (database["dialect"], database["driver"], database["server"]) == ("sqlite", "aiosqlite", "SQLite")
    settings = {one["name"]: one["value"] for one in database["settings"]}
    assert settings["data"] == "in a file"
    assert settings["synchronous"] in ("off", "normal", "full", "extra")
    assert str(here) not in (here / "c.json").read_text()


def test_a_race_has_its_schedule(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    racing = tiny.tiny("concurrency.race", program=broken.RACE, needs={"second_instance", "sql"})
    monkeypatch.setattr(plugin, "catalogue", lambda: [*broken.CATALOGUE, racing])
    main(["certify", "kit.broken:Unfenced", "--certificate", "c.json", "--jobs", "1"])
    failure = only(read(here))["failures"][-1]
    assert failure["contract"] == "concurrency.race"
    assert [one["call"] for one in failure["race"]] == ["A", "B"]
    moves = [(move["call"], move["what"], move["statement"]) for move in failure["schedule"]]
    acts = [(call, what) for call, what, _ in moves]
    assert ("A", "parked before its statement 2", "SELECT") in moves
    assert acts.index(("A", "parked before its statement 2")) < acts.index(("B", "statement 1"))
    assert acts.index(("B", "statement 1")) < acts.index(("A", "goes on"))
    assert moves[-1][1] == "ended"
    assert "parked before its statement 2" in page(here / "c.html")


@pytest.mark.parametrize("certificate", ["missing/c.json", "c.html"])
def test_the_command_says_what_is_wrong_with_the_file(
    here: Path, certificate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", "sqlite", "--certificate", certificate]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("dendrux: ")
    assert certificate in said


def test_a_command_that_finds_no_database_leaves_no_older_certificate(here: Path) -> None:
    assert main(["certify", "sqlite", "--certificate", "c.json"]) == 0
    nobody = "postgresql+asyncpg://me@127.0.0.1:1/x"
    assert main(["certify", "postgresql", "--certificate", "c.json", "--url", nobody]) == 2
    assert not read(here)["certified"]
