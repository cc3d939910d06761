"""Whatever a command cannot be given is said in one line, with an exit code of its own, before anything is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.agents import DESK, MAILS
from turnwright.cli import main

TWICE = """\
from turnwright import AgentDefinition, tool

@tool
def a() -> str:
    '''A.'''

@tool(name="a")
def b() -> str:
    '''B.'''

definition = AgentDefinition("desk", "Help.", tools=[a, b])
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run"], "MODULE_OR_FILE[:definition]"),
        (["run", DESK], "INPUT"),
        (["rnu", DESK], 'Unknown command "rnu". Did you mean "run"?'),
        (["run", DESK, "Hello", "--nonsense"], "--nonsense"),
        (["run", "no_such_file.py", "Hello"], "no file no_such_file.py"),
        (["run", "no.such.module", "Hello"], "no module 'no'"),
        (["run", "turnwright.no_such", "Hello"], "no module 'turnwright.no_such'"),
        (["run", "json", "Hello"], "json has no 'definition', nor any other AgentDefinition"),
        (["run", f"{DESK}:look_up", "Hello"], "'look_up' is not an AgentDefinition but of type Tool"),
        (["run", f"{DESK}:defintion", "Hello"], "did you mean"),
        (["run", f"{DESK}:counting", "Hello"], "the input does not fit agent 'counting'"),
        (["run", f"{DESK}:counting", '["a"]'], "the input does not fit agent 'counting'"),
        (["run", MAILS, "no_such.mbox"], "no_such.mbox: No such file or directory"),
        (["run", DESK, "Hello", "--all"], "has no inputs(argument, *, all)"),
        (["run", DESK, "Hello", "--max-turns", "0"], "Must be >= 1"),
        (["run", DESK, "Hello", "--yes", "--no"], "--yes and --no exclude each other"),
        (["run", DESK, "Hello", "--state", "runs.db"], "name a store as sqlite:PATH"),
        (["chat", "--state", "runs.db"], "name a store as sqlite:PATH"),
        (["chat", f"{DESK}:counting"], "chat needs an agent that takes text"),
        (["run", DESK, "Hello", "-m", "opnai:gpt"], "unknown provider 'opnai'; did you mean openai?"),
        (["run", DESK, "Hello", "-m", "gpt-9"], "say provider:model with one of local, openai"),
        (["run", DESK, "Hello", "-m", "openai"], "say which model of openai"),
        (["run", DESK, "Hello", "-m", "groq:llama"], "set GROQ_API_KEY in the environment"),
        (["run", DESK, "Hello", "-m", "local:mine"], "TURNWRIGHT_LOCAL_MODEL names weights of your own"),
        (["run", DESK, "Hello", "-m", "local"], "-m local: "),
        (["run", DESK, "Hello"], "no model: set OPENAI_API_KEY, or name one with -m"),
        (["run", DESK, "Hello", "--replay", "no_such.jsonl"], "no recording no_such.jsonl"),
        (["run", DESK, "Hello", "-m", "ollama:x", "--record", "none/kept.jsonl"], "there is no directory none"),
        (["run", DESK, "Hello", "--replay", DESK], "is not a recording"),
        (["run", DESK, "Hello", "--replay", DESK, "-m", "local"], "--replay asks no model"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The line names the thing, nothing is run, and the exit code is 2."""
    monkeypatch.chdir(tmp_path)

    code = main(words)

    seen = capsys.readouterr()
    out = seen.out.removeprefix("starting the local model\n")
    assert (2, "", 1, "turnwright: ") == (code, out, seen.err.count("\n"), seen.err[:12])
    assert told in seen.err


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (TWICE, ", line 11: agent 'desk': two tools are named 'a'"),
        ("import no_such_package\n", ", line 1: No module named 'no_such_package'"),
        ("x = 1\ndef f(:\n", ", line 2: invalid syntax"),
        ("\nraise RuntimeError('red \\x1b[31m\\nlight')\n", ", line 2: RuntimeError: red \\x1b[31m light"),
        ("raise SystemExit(3)\n", ", line 1: SystemExit: 3"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    source: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nobody need read a traceback through the command to find a mistake in their own file."""
    path = tmp_path / "mine.py"
    path.write_text(source, encoding="utf-8")

    code = main(["run", str(path), "Hello"])

    seen = capsys.readouterr()
    assert (2, "", 1) == (code, seen.out, seen.err.count("\n"))
    assert f"{path}{told}" in seen.err


def test_a_server_that_cannot_be_reached_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run waits for a model that answers; the line says what failed and what to look at."""
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")  # the port of `discard`, where nobody listens

    code = main(["run", DESK, "Hello", "-m", "openai:gpt"])

    err = capsys.readouterr().err
    assert (3, 1) == (code, err.count("\n"))
    assert "suspended (model): the model failed (connection)" in err
    assert "check that its server runs" in err


def test_without_the_extra_the_command_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain install has the library alone; its command still answers."""
    monkeypatch.setitem(sys.modules, "rich", None)

    code = main(["run", DESK, "Hello"])

    told = "turnwright: rich is not installed; install it with: pip install 'turnwright[cli]'\n"
    assert (2, told) == (code, capsys.readouterr().err)


def test_the_library_imports_nothing_of_the_command_line() -> None:
    """Whoever imports turnwright does not pay for the command."""
    probe = "import sys, turnwright; print({'rich', 'cyclopts', 'turnwright.cli'} & sys.modules.keys())"

    told = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)

    assert "set()\n" == told.stdout
