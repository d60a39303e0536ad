"""Where a server for tests is found: each step with the real thing where it is there, and with a fake where not."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import make_url

from dendrux.testing import databases, servers
from dendrux.testing.databases import NAMES, Lacking, NotFound, Server, find, named, said, variable
from dialects.found import REQUIRE, Found, required

ADDRESS = make_url("redis://127.0.0.1:1/0")


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(variable(name), raising=False)


@pytest.fixture
def fake_redis() -> Iterator[int]:
    """The port of something that answers as Redis does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    link, _ = listening.accept()
                except OSError:
                    return
                with link:
                    link.sendall(b"$30\r\n# Server\r\nredis_version:9.9.9\r\n" if link.recv(100) else b"")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def lacking(why: str, *, final: bool = False) -> Any:
    def step(name: str) -> Server:
        raise Lacking(f"{name}: {why}", final=final)

    return step


def having(name: str) -> Server:
    return Server(name, ADDRESS, "1", "given")


# -- the search -------------------------------------------------------------------------------------------------------


def test_the_first_step_that_finds_something_decides() -> None:
    assert find("redis", (lacking("a"), having, lacking("b"))).how == "given"


def test_what_every_step_lacked_is_said() -> None:
    with pytest.raises(NotFound, match=r"^redis was not found: redis: a; redis: b$"):
        find("redis", (lacking("a"), lacking("b")))


def test_a_server_that_was_named_and_is_of_no_use_ends_the_search() -> None:
    with pytest.raises(NotFound, match=r"^redis was not found: redis: a$"):
        find("redis", (lacking("a", final=True), having))


def test_the_steps_are_variable_then_port_then_binary_then_docker() -> None:
    assert [step.__name__ for step in databases.every_step()] == ["named", "listening", "started", "contained"]


# -- the steps --------------------------------------------------------------------------------------------------------


def test_a_server_that_a_variable_names(fake_redis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DENDRUX_TEST_REDIS_URL", f"redis://127.0.0.1:{fake_redis}/3")
    found = named("redis")
    assert (str(found), found.url.database) == ("redis 9.9.9 (DENDRUX_TEST_REDIS_URL)", "3")


@pytest.mark.parametrize(
    ("name", "url", "why"),
    [
        ("redis", "nonsense", "is no URL"),
        ("redis", "redis://127.0.0.1:1/0", "did not answer"),
        ("postgresql", "postgresql+asyncpg://me:secret@127.0.0.1:1/x", "does not let me in"),
        ("postgresql", "postgresql+nodriver://me:secret@127.0.0.1:1/x", "cannot be used"),
    ],
)
def test_a_variable_that_names_nothing_usable(name: str, url: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable(name), url)
    with pytest.raises(Lacking, match=why) as refused:
        named(name)
    assert refused.value.final
    assert "secret" not in str(refused.value)
    assert "://" not in str(refused.value)


def test_a_server_on_the_standard_port(fake_redis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "PORTS", {**databases.PORTS, "redis": fake_redis})
    assert str(databases.listening("redis")) == f"redis 9.9.9 (listening on 127.0.0.1:{fake_redis})"


def test_nothing_on_the_standard_port(monkeypatch: pytest.MonkeyPatch) -> None:
    free = servers.free_port()
    monkeypatch.setattr(databases, "PORTS", {"redis": free})
    with pytest.raises(Lacking, match=f"^nothing listens on 127.0.0.1:{free}$"):
        databases.listening("redis")


def test_a_server_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "find_spec", lambda name: None)
    with pytest.raises(Lacking, match=r'asyncmy is not installed: pip install "dendrux\[mysql\]"'):
        databases.identified("mariadb", make_url("mysql+asyncmy://root@127.0.0.1:1/"))


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("PostgreSQL 15.20 (Debian 15.20-0+deb12u1) on x86_64-pc-linux-gnu", ("postgresql", "15.20")),
        ("5.5.5-10.11.19-MariaDB-0+deb12u1", ("mariadb", "10.11.19")),
        ("9.7.0", ("mysql", "9.7.0")),
        ("8.4.3-debug", ("mysql", "8.4.3")),
        ("CockroachDB CCL v25.1", (None, "CockroachDB CCL v25.1")),
    ],
)
def test_a_server_is_what_it_says(version: str, name: tuple[str | None, str]) -> None:
    assert said(version) == name


def test_the_other_server_of_a_protocol_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "asked", lambda name, url: ("mariadb", "10.11"))
    with pytest.raises(Lacking, match="it is mariadb"):
        databases.identified("mysql", ADDRESS)


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)


def test_a_mysqld_of_the_other_family_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "mysqld", "print('mysqld  Ver 10.11.19-MariaDB')")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert servers.program_of("mariadb", ("mariadbd", "mysqld")) == str(tmp_path / "mysqld")
    with pytest.raises(Lacking, match=r"^no mysqld of mysql on PATH$"):
        servers.started("mysql")


def test_a_program_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "redis-server", "raise SystemExit(3)")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(servers, "mkdtemp", lambda prefix: str((tmp_path / "made").mkdir() or tmp_path / "made"))
    with pytest.raises(Lacking, match="started redis-server from PATH, and it does not run"):
        servers.started("redis")
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_program_on_path_is_started_and_stopped(name: str) -> None:
    try:
        server = servers.started(name)
    except Lacking as none:
        pytest.skip(str(none))
    try:
        assert databases.identified(name, server.url) == server.version
        assert server.url.port != databases.PORTS[name]
    finally:
        server.stop()
    assert not databases.is_open(server.url.port or 0)


class Container:
    """A container as testcontainers gives one, with a server of this process in it."""

    port = 0
    log: list[str] = []

    def __init__(self, image: str) -> None:
        self.log.append(image)

    def with_envs(self, **variables: str) -> Container:
        return self

    def with_exposed_ports(self, *ports: int) -> Container:
        return self

    def start(self) -> Container:
        if not self.port:
            raise RuntimeError("secret words of Docker")
        return self

    def stop(self) -> None:
        self.log.append("stopped")

    def get_container_host_ip(self) -> str:
        return "127.0.0.1"

    def get_exposed_port(self, port: int) -> int:
        return self.port


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> type[Container]:
    module = ModuleType("container")
    module.DockerContainer = Container  # type: ignore[attr-defined]
    monkeypatch.setattr(servers, "find_spec", lambda name: SimpleNamespace())
    monkeypatch.setattr(servers, "import_module", lambda name: module)
    monkeypatch.setattr(Container, "log", [])
    return Container


def test_a_server_in_a_container(docker: type[Container], fake_redis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "port", fake_redis)
    found = servers.contained("redis")
    assert str(found) == "redis 9.9.9 (redis:7 in Docker)"
    found.stop()
    assert docker.log == ["redis:7", "stopped"]


def test_without_docker_or_testcontainers(docker: type[Container], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Lacking, match=r"^Docker gave no mysql:8.4 \(RuntimeError\)$"):
        servers.contained("mysql")
    assert docker.log == ["mysql:8.4", "stopped"]
    monkeypatch.setattr(servers, "find_spec", lambda name: None)
    with pytest.raises(Lacking, match=r"^testcontainers is not installed$"):
        servers.contained("mysql")


# -- the suite --------------------------------------------------------------------------------------------------------


def test_what_was_not_found_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def nowhere(name: str) -> Server:
        asked.append(name)
        raise NotFound(name, ["it is not there"])

    monkeypatch.setattr("dialects.found.find", nowhere)
    found = Found()
    for _ in range(2):
        with pytest.raises(NotFound):
            found.database("mysql")
    assert list(found.report()) == ["mysql was not found: it is not there"]
    assert found.missing(["mysql"]) == ["mysql was not found: it is not there"]
    assert asked == ["mysql"]


def test_what_may_be_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRE, raising=False)
    assert required() == []
    monkeypatch.setenv(REQUIRE, "postgresql, redis,")
    assert required() == ["postgresql", "redis"]
    monkeypatch.setenv(REQUIRE, "oracle")
    with pytest.raises(ValueError, match="DENDRUX_TEST_REQUIRE names oracle; known are postgresql, mariadb"):
        required()


def test_a_suite_without_a_required_server_fails_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REQUIRE, "redis")
    monkeypatch.setenv("DENDRUX_TEST_REDIS_URL", "redis://127.0.0.1:1/0")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", f"--rootdir={root}", str(root / "tests/unit/test_field_faults.py")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "redis was not found: the server of DENDRUX_TEST_REDIS_URL: it did not answer" in done.stdout + done.stderr
    assert "passed" not in done.stdout
