"""Servers that are started for tests: a binary on PATH in a temporary folder, or an image in Docker.

Nothing they hold outlives them, so none of them waits for the disk.
"""

from __future__ import annotations

import atexit
import gc
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple

from dendrux.testing.databases import HOST, PORTS, Lacking, Server, account, identified

START_S: Final = 120.0
"""A server that does not answer by then does not start."""
STOP_S: Final = 20.0
PAUSE_S: Final = 0.1


class Recipe(NamedTuple):
    """How a server is started."""

    programs: tuple[str, ...]
    """Any of these serves."""
    prepare: Callable[[str, Path], list[str] | None]
    """The command that makes the data folder, from the program and that folder."""
    serve: Callable[[str, Path, int], list[str]]
    """The command of the server, from the program, the data folder and the port."""
    refuses_root: bool = False
    ends_on: signal.Signals = signal.SIGTERM


def of_mysql(program: str, data: Path, port: int) -> list[str]:
    """The command of either server of the family."""
    return [
        program,
        "--no-defaults",
        f"--datadir={data}",
        f"--port={port}",
        f"--bind-address={HOST}",
        "--socket=server.sock",
        "--pid-file=server.pid",
        "--innodb-flush-log-at-trx-commit=0",
        *as_root(),
    ]


def as_root() -> list[str]:
    """What the servers of the MySQL family want to hear before they run as root."""
    return ["--user=root"] if os.geteuid() == 0 else []


RECIPES: Final[Mapping[str, Recipe]] = {
    "postgresql": Recipe(
        ("postgres",),
        lambda program, data: [
            *("initdb", "--pgdata", str(data), "--username", "postgres", "--auth", "trust"),
            *("--encoding", "UTF8", "--locale", "C", "--no-sync"),
        ],
        lambda program, data, port: [
            *(program, "-D", str(data), "-h", HOST, "-p", str(port), "-c", "unix_socket_directories="),
            *("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"),
        ],
        refuses_root=True,
        ends_on=signal.SIGINT,  # without waiting for clients
    ),
    "mariadb": Recipe(
        ("mariadbd", "mysqld"),
        lambda program, data: [
            *("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db"),
            *("--auth-root-authentication-method=normal", *as_root()),
        ],
        of_mysql,
    ),
    "mysql": Recipe(
        ("mysqld",),
        lambda program, data: [program, "--no-defaults", "--initialize-insecure", f"--datadir={data}", *as_root()],
        lambda program, data, port: [*of_mysql(program, data, port), "--mysqlx=OFF", "--skip-log-bin"],
    ),
    "redis": Recipe(
        ("redis-server",),
        lambda program, data: None,
        lambda program, data, port: [
            *(program, "--port", str(port), "--bind", HOST, "--dir", str(data), "--save", "", "--appendonly", "no"),
        ],
    ),
}


def started(name: str) -> Server:
    """A server of the binary on PATH, on a free port, in a folder that goes when it stops."""
    recipe = RECIPES[name]
    program = program_of(name, recipe.programs)
    folder = Path(mkdtemp(prefix=f"dendrux-{name}-"))
    running = Running(folder, recipe.ends_on, user=account_for(recipe, folder))
    port = free_port()
    try:
        data = folder / "data"
        prepare = recipe.prepare(program, data)
        if prepare is None:
            data.mkdir()
        else:
            running.prepare([resolved(prepare[0]), *prepare[1:]])
        running.start(recipe.serve(program, data, port))
        return ready(name, HOST, port, f"started {Path(program).name} from PATH", running.stop, running.ended)
    except BaseException:
        running.stop()
        raise


def program_of(name: str, candidates: Sequence[str]) -> str:
    """The path of the program that serves this database: `mysqld` may be either server of its family."""
    for candidate in candidates:
        path = shutil.which(candidate)
        if path is not None and is_of(name, path):
            return path
    raise Lacking(f"no {' or '.join(candidates)} of {name} on PATH")


def is_of(name: str, path: str) -> bool:
    """Whether the program at a path is of this database."""
    if name not in ("mariadb", "mysql"):
        return True
    command = [path, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STOP_S, check=False)  # noqa: S603  # on PATH
    return done.returncode == 0 and ("MariaDB" in done.stdout) == (name == "mariadb")


def resolved(program: str) -> str:
    """The path of a program that a server comes with."""
    path = shutil.which(program)
    if path is None:
        raise Lacking(f"no {program} on PATH")
    return path


def account_for(recipe: Recipe, folder: Path) -> str | None:
    """Whom a server runs as that refuses root; the folder becomes theirs."""
    if not recipe.refuses_root or os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            shutil.chown(folder, name)
            return name
    raise Lacking("root may not start this server, and there is no account to start it as")


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port


class Running:
    """A server process and its folder, both gone after `stop`."""

    def __init__(self, folder: Path, ends_on: signal.Signals, user: str | None = None) -> None:
        self.folder = folder
        self.ends_on = ends_on
        self.user = user
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)

    def prepare(self, command: list[str]) -> None:
        """Run a command to its end."""
        done = subprocess.run(  # noqa: S603  # of a recipe
            command,
            cwd=self.folder,
            user=self.user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=START_S,
            check=False,
        )
        if done.returncode != 0:
            raise Lacking(f"{Path(command[0]).name} failed with exit code {done.returncode}")

    def start(self, command: list[str]) -> None:
        """Start the server."""
        self.process = subprocess.Popen(  # noqa: S603  # of a recipe
            command,
            cwd=self.folder,
            user=self.user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupted test run stops it in its own time
        )

    def ended(self) -> bool:
        """Whether the server has ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def stop(self) -> None:
        """End the server and remove its folder."""
        atexit.unregister(self.stop)
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(self.ends_on)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def ready(
    name: str, host: str, port: int, how: str, stop: Callable[[], None], ended: Callable[[], bool] = lambda: False
) -> Server:
    """A server that was just started, once it lets us in."""
    url = account(name, host, port)
    until = time.monotonic() + START_S
    while True:
        try:
            return Server(name, url, identified(name, url), how, stop)
        except Lacking as lacking:
            if ended() or time.monotonic() > until:
                raise Lacking(f"{how}, and it does not run: {lacking}") from None
        time.sleep(PAUSE_S)


# -- Docker -----------------------------------------------------------------------------------------------------------

IMAGES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "postgresql": ("postgres:17", {"POSTGRES_HOST_AUTH_METHOD": "trust"}),
    "mariadb": ("mariadb:11.4", {"MARIADB_ALLOW_EMPTY_ROOT_PASSWORD": "1"}),
    "mysql": ("mysql:8.4", {"MYSQL_ALLOW_EMPTY_PASSWORD": "1"}),
    "redis": ("redis:7", {}),
}
"""Images of each server, and what makes its account open to these tests."""


def contained(name: str) -> Server:
    """A server in a container, where testcontainers is installed and Docker answers."""
    if find_spec("testcontainers") is None:
        raise Lacking("testcontainers is not installed")
    image, variables = IMAGES[name]
    container: Any = None
    reason: str | None = None
    try:
        made = import_module("testcontainers.core.container").DockerContainer(image)
        container = made.with_envs(**variables).with_exposed_ports(PORTS[name])
        container.start()
        host, port = container.get_container_host_ip(), int(container.get_exposed_port(PORTS[name]))
    except Exception as error:  # whatever stands between us and a container
        reason = type(error).__name__
    if reason is not None:
        if container is not None:
            with suppress(Exception):
                container.stop()
        del container
        collect_quietly()
        raise Lacking(f"Docker gave no {image} ({reason})")
    try:
        return ready(name, host, port, f"{image} in Docker", container.stop)
    except BaseException:
        container.stop()
        raise


def collect_quietly() -> None:
    """Let go of what a client of Docker that failed leaves open: it would be found in the middle of somebody's test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
