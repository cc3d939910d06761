"""A Postgres server of the test session's own, on loopback, and one schema in it for each place.

Rule: whoever starts it stops it; and if the process dies, however it dies, the system stops the server.
"""

from __future__ import annotations

import functools
import getpass
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final

__all__ = ["conninfo", "schema_of", "serving"]

READY: Final = "database system is ready to accept connections"
SECONDS: Final = 60.0
"""How long the server may take to come up, and to go."""
PASSWORD: Final = "swordfish"  # of the user `guarded`, who alone needs one

_serving: list[str] = []


def conninfo() -> str:
    """The address of the session's server, which the fixture `postgres` starts."""
    assert _serving, "no server: mark the module with pytest.mark.usefixtures('postgres')"
    return _serving[-1]


def schema_of(place: Path) -> str:
    """The name of the schema that belongs to *place*."""
    return "t" + hashlib.sha256(os.fsencode(place)).hexdigest()[:16]


@contextmanager
def serving(**settings: str) -> Iterator[str]:
    """Start a server, installing Postgres where it is missing; give its address; stop it at the end."""
    programs = _programs()
    folder = Path(tempfile.mkdtemp(prefix="turnwright-postgres-"))
    data = folder / "data"
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to work for root
    if user is not None:
        shutil.chown(folder, user, user)
    try:
        initdb = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]
        subprocess.run([*initdb, "--no-sync"], check=True, capture_output=True, user=user, cwd=folder, timeout=SECONDS)
        with (data / "pg_hba.conf").open("r+") as rules:
            said = rules.read()
            rules.seek(0)
            rules.write("host all guarded 127.0.0.1/32 scram-sha-256\n" + said)
        port = _free_port()
        needed = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": folder,
            "max_connections": 300,
            "shared_buffers": "64MB",
        }
        options = [word for name, value in {**needed, **settings}.items() for word in ("-c", f"{name}={value}")]
        # SIGINT asks it to stop without waiting for those who are connected.
        dies_with_us = ["setpriv", "--pdeathsig", "INT", "--"]
        process = subprocess.Popen(
            [*dies_with_us[:1], *_as(user), *dies_with_us[1:], programs / "postgres", "-D", data, *options],
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        try:
            _await_ready(process)
            _serving.append(f"postgresql://postgres@127.0.0.1:{port}/postgres")
            yield _serving[-1]
        finally:
            if _serving:
                _serving.pop()
            process.send_signal(2)
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(folder)


def _as(user: str | None) -> list[str]:
    return [] if user is None else ["--reuid", user, "--regid", user, "--init-groups"]


def _await_ready(process: subprocess.Popen[str]) -> None:
    """Read what the server says until it is ready; go on reading, so that it never waits for us."""
    said: list[str] = []
    settled = Event()

    def listen() -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                if not settled.is_set():
                    said.append(line)
                if READY in line:
                    settled.set()
        settled.set()

    Thread(target=listen, name="postgres says", daemon=True).start()
    settled.wait(SECONDS)
    if not said or READY not in said[-1]:
        raise RuntimeError("Postgres did not come up: " + "".join(said[-5:]))


@functools.cache
def _programs() -> Path:
    """The folder of the newest server installed, which is Debian's place; if there is none, install one."""
    if not (found := _installed()) and os.geteuid() == 0:
        apt = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            ["apt-get", "-qq", "update"],
            ["apt-get", "-qq", "install", "-y", "--no-install-recommends", "postgresql"],
        ):
            subprocess.run(command, check=True, env=apt, stdout=sys.stderr, timeout=600)
        found = _installed()
    if not found:
        raise RuntimeError(f"{getpass.getuser()} cannot install Postgres; do: apt-get install postgresql")
    return found[-1]


def _installed() -> list[Path]:
    candidates = [each.parent for each in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    if on_path is not None:
        candidates.append(Path(on_path).resolve().parent)
    return sorted(candidates, key=lambda each: int(each.parent.name) if each.parent.name.isdecimal() else 0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
