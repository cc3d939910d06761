"""Stores whose content is sealed, from the command line: the keys are in a file, and are never typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.agents import DESK
from tests.cli.conftest import Record
from turnwright.cli import main
from turnwright.testing import call, text
from turnwright_adapters.sealed import new_key

INPUT = "My teapot broke"
RING = f"2027-01 {new_key().hex()}\n"
NEWER = f"2027-02 {new_key().hex()}\n"
NOBODYS = f"2026-12 {new_key().hex()}\n"


class Sealed:
    """A run that waits for approval in a store that is sealed by the keys of a file."""

    def __init__(self, place: Path, run_id: str, replay: str) -> None:
        self.path = place / "runs.db"
        self.keys = place / "keys"
        self.run_id = run_id
        self.replay = replay

    def say(self, command: str, *words: str, keys: bool = True) -> int:
        """Do a command about the run; its exit code."""
        target = [DESK] if command == "resume" else []
        options = ["--keys", str(self.keys)] if keys else []
        return main([command, *target, self.run_id, *words, "--state", f"sqlite:{self.path}", *options])

    def resume(self) -> int:
        """Go on with it; its exit code."""
        return self.say("resume", "--replay", self.replay)


@pytest.fixture
def sealed(record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sealed:
    """Run an agent up to its question, with the keys of a file."""
    replies = [call("refund", order="1042", cents=4500), text("It is on its way to you.")]
    replay = record(DESK, INPUT, replies, decisions=["approve"])
    (tmp_path / "keys").write_text(RING, encoding="utf-8")
    store = ["--state", f"sqlite:{tmp_path / 'runs.db'}", "--keys", str(tmp_path / "keys")]
    assert 3 == main(["run", DESK, INPUT, "--replay", replay, "--json", *store])
    seen = capsys.readouterr()
    return Sealed(tmp_path, json.loads(seen.out)["run_id"], replay)


@pytest.mark.promise("N-04", "N-05")
def test_a_sealed_run_is_shown_decided_and_resumed_with_its_keys(
    sealed: Sealed, capsys: pytest.CaptureFixture[str]
) -> None:
    """No byte of what was said is in the file, and every command does as it does elsewhere."""
    assert INPUT.encode() not in sealed.path.read_bytes()

    codes = [sealed.say("why"), sealed.say("approve", "1.0"), sealed.resume()]

    assert [0, 0, 0] == codes
    seen = capsys.readouterr().out
    assert all([words in seen for words in (INPUT, '"order": "1042"', "It is on its way to you.")])


def test_the_commands_that_go_on_name_the_keys_too(sealed: Sealed, capsys: pytest.CaptureFixture[str]) -> None:
    """They are ready to be typed."""
    sealed.resume()

    assert f"turnwright approve {sealed.run_id} 1.0 --state sqlite:{sealed.path} --keys {sealed.keys}" in (
        capsys.readouterr().out
    )


@pytest.mark.promise("N-04")
def test_without_the_keys_there_is_evidence_and_nothing_can_be_said(
    sealed: Sealed, capsys: pytest.CaptureFixture[str]
) -> None:
    """The account has every step without its content; a word that the run could not read is not posted."""
    codes = [sealed.say("why", keys=False), sealed.say("cancel", keys=False), sealed.say("approve", "1.0", keys=False)]

    seen = capsys.readouterr()
    assert [0, 1, 1] == codes
    assert "approval" in seen.out and INPUT not in seen.out
    assert 2 == seen.err.count("its content is sealed; name the file of its keys with --keys")
    assert [0, 0] == [sealed.say("approve", "1.0"), sealed.resume()]


@pytest.mark.promise("N-04")
def test_a_newer_key_seals_and_the_older_one_still_opens(sealed: Sealed, capsys: pytest.CaptureFixture[str]) -> None:
    """Put at the end of the file it serves from then on; once the old key is gone, so is what it sealed."""
    sealed.keys.write_text(RING + NEWER, encoding="utf-8")
    assert [0, 0] == [sealed.say("approve", "1.0"), sealed.resume()]
    capsys.readouterr()

    sealed.keys.write_text(NEWER, encoding="utf-8")

    assert 1 == sealed.say("why")
    assert "sealed with the key '2027-01', which is not on the ring" in capsys.readouterr().err


@pytest.mark.promise("N-04")
def test_a_key_of_somebody_else_opens_nothing(sealed: Sealed, capsys: pytest.CaptureFixture[str]) -> None:
    """Under another name, or under the same one."""
    for line, words in ((NOBODYS, "which is not on the ring"), (NOBODYS.replace("2026-12", "2027-01"), "changed")):
        sealed.keys.write_text(line, encoding="utf-8")

        assert 1 == sealed.say("approve", "1.0")
        assert words in capsys.readouterr().err


@pytest.mark.promise("N-04")
def test_what_was_not_sealed_is_refused_where_there_are_keys(
    record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever names keys is not given what anybody may have written."""
    replay = record(DESK, INPUT, [text("Hello.")])
    store = ["--state", f"sqlite:{tmp_path / 'runs.db'}"]
    assert 0 == main(["run", DESK, INPUT, "--replay", replay, "--json", *store])
    run_id = json.loads(capsys.readouterr().out)["run_id"]
    (tmp_path / "keys").write_text(RING, encoding="utf-8")

    assert 1 == main(["why", run_id, *store, "--keys", str(tmp_path / "keys")])
    assert "plaintext is refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        ("", "there is no key in it"),
        ("\n \n", "there is no key in it"),
        (f"{RING}2027-02 abc123\n", "line 2: write a name, a blank and 64 hex digits"),
        (RING.split()[1], "line 1: write a name"),
        (RING + RING, "line 2: a second key is named '2027-01'"),
        ("k" * 256 + RING, "the name of a key has 1 to 255 bytes"),
        ("\udcff", "it is no text"),
    ],
)
def test_a_file_without_usable_keys_is_one_line_that_quotes_no_key(
    content: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the file and the remedy, and nothing is made."""
    keys = tmp_path / "keys"
    if content is not None:
        keys.write_bytes(content.encode(errors="surrogateescape"))

    code = main(["run", DESK, INPUT, "--state", f"sqlite:{tmp_path / 'runs.db'}", "--keys", str(keys)])

    said = capsys.readouterr().err
    assert (2, 1, False) == (code, said.count("\n"), (tmp_path / "runs.db").exists())
    assert f"--keys {keys}" in said and told in said and RING.split()[1] not in said


def test_keys_without_a_store_seal_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody believes by mistake that a run in memory is kept."""
    assert 2 == main(["run", DESK, INPUT, "--keys", str(tmp_path / "keys")])
    assert "name the store with --state" in capsys.readouterr().err
