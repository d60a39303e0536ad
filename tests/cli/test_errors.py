"""What commands say when they cannot use their input or their database: plainly, as JSON too, and without secrets."""

from __future__ import annotations

import pytest

from dendrux.cli import main

SECRET = "geheim"
BROKEN = (
    f"postgresql+asyncpg://u:{SECRET}/none",
    f"postgresql+asyncpg://u:{SECRET}@host:abc/",
    f"postgresql+asyncpg://u:{SECRET}@[::1/",
    f"postgresql+asyncpg://u@h/d?port={SECRET}",
    f"sqlite+aiosqlite:///a.db?timeout={SECRET}",
)
COMMANDS = (
    ["runs", "list"],
    ["runs", "show", "r"],
    ["sweep", "--stale-running", "1h"],
    ["reclaim"],
    ["db", "check"],
    ["db", "status"],
    ["db", "migrate"],
    ["db", "activate"],
)


@pytest.fixture
def said(capsys):
    def run(*arguments):
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


# -- a URL that cannot be used ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", BROKEN)
@pytest.mark.parametrize("command", [*COMMANDS, ["certify", "sqlite"]], ids=" ".join)
def test_no_part_of_a_broken_url_is_printed(said, command, url):
    code, out, err = said(*command, "--url", url)
    assert (code, out) == (2, "")
    assert "--url" in err
    assert SECRET not in err


def test_nor_of_one_in_the_variable(said, monkeypatch):
    monkeypatch.setenv("DENDRUX_DATABASE_URL", BROKEN[0])
    code, _, err = said("db", "check")
    assert code == 2
    assert err.startswith("dendrux: DENDRUX_DATABASE_URL is no SQLAlchemy URL; one looks like")
    assert SECRET not in err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql+pymysql://u@h/d", "must name an async driver (mysql+asyncmy)"),
        ("mariadb+pymysql://u@h/d", "must name an async driver (mariadb+asyncmy)"),
        ("postgresql+psycopg2://u@h/d", "must name an async driver (postgresql+asyncpg or postgresql+psycopg)"),
        ("sqlite+aiosqlite:///a.db?foo=x", "has an option after ? that its driver does not take"),
        ("sqlite+aiosqlite://a.db", "has a host, and SQLite has none"),
    ],
)
def test_what_a_url_must_be_is_said(said, url, message):
    code, _, err = said("db", "status", "--url", url)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
