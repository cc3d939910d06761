"""The life of the embedded model's server: it answers, and it never outlives the process that started it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from turnwright.errors import ModelError, PortError
from turnwright.messages import UserMessage
from turnwright.ports import ModelRequest
from turnwright.tools import ToolSpec
from turnwright_adapters._weights import find_weights
from turnwright_adapters.local import LocalModel

pytest.importorskip("xllamacpp", reason="the embedded model needs turnwright[local]")

SERVER = [sys.executable, "-P", "-m", "turnwright_adapters.local_server"]

PARENT = """
import asyncio, sys
from pathlib import Path
from turnwright_adapters.local import LocalModel

async def main():
    async with LocalModel(Path(sys.argv[1])) as model:
        print(model._server.process.pid, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        if sys.argv[2] == "leave":
            import os
            os._exit(0)

asyncio.run(main())
"""


@pytest.fixture(scope="session")
def weights() -> Path:
    """The weights, fetched once into the user's cache."""
    try:
        return find_weights()
    except PortError as error:
        pytest.skip(str(error))


def request(**more: object) -> ModelRequest:
    """A request of one short message."""
    message = UserMessage("What is the weather in Oslo?")
    return ModelRequest("run", 1, 1, "Be brief.", [message], options={"max_tokens": 48, "temperature": 0}, **more)  # type: ignore[arg-type]


def ends(pid: int) -> bool:
    """Whether the process *pid* ends within 20 seconds."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 20)[0])
    finally:
        os.close(process)


async def test_it_calls_the_tool_that_it_must_call_and_ends_when_closed(weights: Path) -> None:
    """The call has the right shape; after `aclose` the server is gone, and a second `aclose` does nothing."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = ToolSpec("weather", "Tell the weather.", city)
    async with LocalModel(weights) as model:
        assert model._server is not None
        pid = model._server.process.pid
        answer = await model.complete(request(tools=(tool,), tool_choice="weather"))

    assert [("weather", "tool_calls")] == [(call.name, answer.stop_reason) for call in answer.calls]
    assert ends(pid)
    await model.aclose()


async def test_a_server_that_died_is_started_again(weights: Path) -> None:
    """The next request finds it dead and has another."""
    async with LocalModel(weights) as model:
        assert model._server is not None
        first = model._server.process
        first.kill()
        first.wait(20)

        assert "" != (await model.complete(request())).text


@pytest.mark.parametrize("end", ["close", "leave", "kill"])
def test_the_server_does_not_outlive_its_parent(weights: Path, end: str) -> None:
    """Whether the parent closes it, exits without a word, or is killed by SIGKILL."""
    command = [sys.executable, "-c", PARENT, str(weights), end]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert select.select([parent.stdout], [], [], 60)[0], "the server was not ready within 60 s"
        server = int(parent.stdout.readline())
        if end == "kill":
            parent.kill()
        parent.stdin.close()

        assert ends(server)
        parent.wait(20)


def test_the_server_ends_with_its_parent_even_while_it_loads(tmp_path: Path) -> None:
    """The load, held up in a pipe for as long as we like, keeps every thread of the child from running."""
    pipe = tmp_path / "weights.gguf"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [*SERVER, str(pipe)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdin is not None
        child.stdin.write(b"key\n")
        child.stdin.flush()
        with pipe.open("wb"):  # opens once the child reads
            child.stdin.close()

            assert -signal.SIGIO == child.wait(20)


async def test_weights_that_are_none_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    """What the server said last is in the message, and the request surely never left."""
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"no weights")
    with pytest.raises(ModelError, match=r"did not start with .*junk\.gguf") as raised:
        await LocalModel(junk).complete(request())

    assert not raised.value.dispatched


async def test_a_process_with_many_descriptors_starts_a_server_too(tmp_path: Path) -> None:
    """What waits for its first line takes a descriptor of any number."""
    (tmp_path / "none.gguf").write_bytes(b"no weights")
    with ExitStack() as held:
        for _ in range(1100):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY))

        with pytest.raises(ModelError, match="did not start"):
            await LocalModel(tmp_path / "none.gguf").complete(request())
