"""The certificate as a page: made of the document alone, in one file, with no script and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d5dbe3; --ground: #fff; --panel: #f5f7fa;
  --good: #14703a; --bad: #b3261e; --care: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa5b4; --line: #36404d; --ground: #14181e;
  --panel: #1d232b; --good: #5fd08c; --bad: #ff8a80; --care: #f0bf5a; } }
body { margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: var(--ink); background: var(--ground);
  font: 15px/1.5 system-ui, sans-serif; }
h1, h2, h3 { line-height: 1.25; } h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
code, td.code { font: 13px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.wrong td { background: color-mix(in srgb, var(--bad) 14%, transparent); }
.verdict { padding: .8rem 1rem; background: var(--panel); border-left: .4rem solid var(--soft);
  overflow-wrap: anywhere; }
.passed, .good { color: var(--good); } .failed, .bad { color: var(--bad); }
.skipped, .not_run, .care { color: var(--care); }
.verdict.good { border-color: var(--good); color: inherit; } .verdict.bad { border-color: var(--bad); color: inherit; }
.verdict.care { border-color: var(--care); color: inherit; }
details { margin: .5rem 0; } summary { cursor: pointer; } .soft { color: var(--soft); }
"""

Rows = Iterable[Sequence[object]]


class Raw(str):
    """Text that is markup already."""

    __slots__ = ()


def page(content: Mapping[str, Any]) -> str:
    """The page of a document."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(title(content))}</title>",
            f"<style>{STYLE}</style>",
            "<body>",
            *head(content),
            *(line for store in content["stores"] for line in of_store(store)),
            "</body>",
            "</html>",
            "",
        ]
    )


def text(value: object) -> str:
    """Anything as text in a page."""
    return value if isinstance(value, Raw) else escape("" if value is None else str(value))


def title(content: Mapping[str, Any]) -> str:
    """What the page is called."""
    names = ", ".join(dict.fromkeys(store["class"] or "no store" for store in content["stores"])) or "no store"
    return f"{names}: {'certified' if content['certified'] else 'not certified'} - dendrux store kit"


def head(content: Mapping[str, Any]) -> Iterator[str]:
    """What is said of the whole session."""
    yield "<h1>Certificate of the dendrux store kit</h1>"
    if not content["finished"]:
        yield '<p class="verdict bad">The session did not come to its end: this is what was known until then.</p>'
    if content["remark"]:
        yield f'<p class="verdict bad">NOT CERTIFIED (incomplete run): {text(content["remark"])}</p>'
    kit, asked = content["kit"], content["settings"]
    examples = "default" if asked["examples"] is None else asked["examples"]
    seed = "default" if asked["seed"] is None else asked["seed"]
    yield from facts(
        [
            ("made", content["made"]),
            ("kit", ", ".join(f"{name} {number or 'unknown'}" for name, number in kit.items())),
            ("asked for", f"examples per machine: {examples}; seed: {seed}; pair matrix: {asked['matrix']}"),
        ]
    )


def of_store(store: Mapping[str, Any]) -> Iterator[str]:
    """A store: what it is, the verdict, and what it rests on."""
    yield f"<h2>{text(store['class'] or 'No store')}</h2>"
    verdict = store["verdict"]
    tone = "bad" if not verdict["certified"] else "care" if verdict["caveats"] else "good"
    yield f'<p class="verdict {tone}">{text(verdict["text"])}</p>'
    if store["class"] is None:
        yield f"<p>The fixtures of <code>{text(store['place'])}</code> made no store.</p>"
        return
    yield from facts(declared(store))
    yield from listing("What speaks against it", verdict["reasons"])
    yield from listing("Caveats", verdict["caveats"])
    yield from database(store["database"])
    yield "<h3>Groups</h3>"
    yield from groups(store["groups"])
    yield "<h3>How much was tried</h3>"
    yield from facts(tried(store))
    yield from machines(store["machines"])
    if store["failures"]:
        yield "<h3>Broken promises</h3>"
        for failure in store["failures"]:
            yield from broken(failure)
    yield "<h3>Contracts</h3>"
    for group in store["groups"]:
        yield from contracts(group, [c for c in store["contracts"] if c["group"] == group["name"]])


def declared(store: Mapping[str, Any]) -> Rows:
    """What the store says of itself, and what was given to test it with."""
    yield "class", Raw(f"<code>{text(store['module'])}.{text(store['class'])}</code>")
    yield "deployment", store["deployment"] or "not declared"
    yield "capabilities", ", ".join(name for name, has in store["capabilities"].items() if has) or "none"
    yield "storage format of its runs", store["storage_format"] or "unknown"
    yield "fixtures", ", ".join(name for name, given in store["fixtures"].items() if given)
    yield "forms of disconnect", ", ".join(store["disconnect_forms"]) or "none"


def database(found: Mapping[str, Any] | None) -> Iterator[str]:
    """The database as it was probed."""
    yield "<h3>Database, as it was probed</h3>"
    if found is None:
        yield "<p>The store has no SQLAlchemy engine that could be asked.</p>"
        return
    server = f"{found['server']} {found['server_version'] or '(version unknown)'}"
    driver = f"{found['driver']} {found['driver_version'] or '(version unknown)'}"
    yield f"<p>{text(server)}, reached with {text(driver)}.</p>"
    yield from table(("setting", "value"), ((one["name"], value_of(one)) for one in found["settings"]))


def value_of(setting: Mapping[str, Any]) -> str:
    """A setting's value, or why there is none."""
    if setting["value"] is not None:
        return str(setting["value"])
    return Raw(f'<i class="soft">{text(setting["why_not"])}</i>')


def groups(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The counts of each group."""
    counts = ("passed", "failed", "skipped", "not_run")
    yield "<table><tr><th>group</th>" + "".join(f"<th>{name.replace('_', ' ')}</th>" for name in counts) + "</tr>"
    for group in found:
        if group["contracts"]:
            cells = "".join(f'<td class="number {name if group[name] else ""}">{group[name]}</td>' for name in counts)
        else:
            cells = '<td colspan="4" class="soft">not part of this version</td>'
        yield f"<tr><td>{text(group['name'])}</td>{cells}</tr>"
    yield "</table>"


def tried(store: Mapping[str, Any]) -> Rows:
    """Coverage in numbers."""
    found, matrix, cuts = store["machines"], store["pair_matrix"], store["fault_cells"]
    if found is not None:
        yield "machines: (operation, branch) pairs", f"{found['reached']} of {found['total']} reached"
    yield "pair matrix: cells", f"{matrix['cells_run']} of {matrix['cells_known']} run" if matrix else "none"
    yield "cuts of a transaction", f"{cuts['covered']} of {cuts['known']} cells covered" if cuts else "none"


def machines(found: Mapping[str, Any] | None) -> Iterator[str]:
    """Each machine, and what none of them reached."""
    if found is None:
        return
    heads = ("machine", "profile", "examples", "seed", "pairs reached")
    rows = ((r["contract"], r["profile"], r["examples"], r["seed"], r["reached"]) for r in found["runs"])
    yield f"<details><summary>{len(found['runs'])} machines</summary>"
    yield from table(heads, rows)
    yield "</details>"
    yield from listing("Not reached by any machine", found["not_reached"])


def broken(failure: Mapping[str, Any]) -> Iterator[str]:
    """A broken promise with its program."""
    yield f"<details open><summary><code>{text(failure['contract'])}</code></summary>"
    yield f"<p>{text(failure['promise'])}</p>"
    if failure["program"]:
        yield "<table><tr><th>step</th><th>call</th><th>the model allows</th><th>the store answered</th></tr>"
        for row in failure["program"]:
            mark = ' class="wrong"' if row["wrong"] else ""
            cells = "".join(f'<td class="code">{text(row[name])}</td>' for name in ("call", "allowed", "answered"))
            yield f'<tr{mark}><td class="number">{row["step"]}</td>{cells}</tr>'
        yield "</table>"
    if failure["schedule"]:
        yield "<p>The schedule of the race, line after line:</p>"
        yield from table(("call", "is"), ((one["call"], one["is"]) for one in failure["race"]))
        yield from table(
            ("call", "what it did", "statement"),
            ((move["call"], move["what"], move["statement"]) for move in failure["schedule"]),
        )
    rows = [
        ("first difference", failure["differs_at"]),
        ("likely cause", failure["cause"]),
    ]
    yield from facts((name, value) for name, value in rows if value)
    yield "</details>"


def contracts(group: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The contracts of a group, each with its outcome."""
    if not found:
        return
    yield f"<details><summary>{text(group['name'])}: {len(found)} contracts</summary>"
    yield "<table><tr><th>contract</th><th>outcome</th><th>promise, or why it was skipped</th></tr>"
    for one in found:
        outcome = one["outcome"]
        why = one["promise"] if one["reason"] is None else f"{one['promise']} Skipped: {one['reason']}."
        yield (
            f'<tr><td class="code">{text(one["id"])}</td><td class="{outcome}">{outcome.replace("_", " ")}</td>'
            f"<td>{text(why)}</td></tr>"
        )
    yield "</table></details>"


def facts(rows: Rows) -> Iterator[str]:
    """Names with their values."""
    yield "<table>"
    yield from (f"<tr><th>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in rows)
    yield "</table>"


def table(heads: Sequence[str], rows: Rows) -> Iterator[str]:
    """A table with a head."""
    yield "<table><tr>" + "".join(f"<th>{text(name)}</th>" for name in heads) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{text(value)}</td>" for value in row) + "</tr>"
    yield "</table>"


def listing(name: str, items: Sequence[str]) -> Iterator[str]:
    """A list under its name; nothing for an empty one."""
    if items:
        yield f"<p>{text(name)}:</p><ul>" + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>"
