"""What every state port must do: see `turnwright.ports.State`.

Time passes only by leases that have already run out: one that is taken for 0 seconds is over at once by any clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, Final, Literal, TypeAlias

import pytest

from turnwright.definition import Durability
from turnwright.errors import PortError
from turnwright.evidence import GENESIS, Entry, verify
from turnwright.facts import (
    Fact,
    Fault,
    ModelAsked,
    ModelFailed,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunMigrated,
    RunResumed,
    RunSuspended,
    TurnStarted,
)
from turnwright.inbox import Approve, Cancel, Deny, FollowUp, LateResult, Resolve, Steer, Word
from turnwright.messages import File, Image, UserMessage
from turnwright.ports import Appended, Busy, Conflict, Fenced, Lease, State
from turnwright.racing import may_wait
from turnwright_contracts.author import AT, AWKWARD, Author, told
from turnwright_contracts.running import answers_at_once, cut, scenario

__all__ = ["WORDS", "Lack", "StateSuite"]

Lack: TypeAlias = Literal["second owner", "retention"]

LONG: Final = 3600.0

ANSWERS: Final[tuple[object, ...]] = (0, False, "", None, [], {}, {"a": [1.5, None, "é"]})

WORDS: Final[tuple[Word, ...]] = (
    Approve("r1:1.0", digest="d" * 64, by="ann", level=2),
    Deny("r1:1.0", "not with my ☃", "bob"),
    *[Resolve("r1:1.0", True, output) for output in ANSWERS],
    Cancel("enough", "ann"),
    Steer(UserMessage("left, please")),
    FollowUp(UserMessage((Image("image/png", data="AAAA"), File("text/plain", data="AAAA", name="☃.txt")))),
    LateResult("r1:1.0", {"paid": True}),
)
"""One word of every kind, with every answer that is false and yet an answer."""


class StateSuite:
    """Subclass it and say how the store is made."""

    durability: ClassVar[Durability]
    """The class that the store declares."""

    lacks: ClassVar[frozenset[Lack]] = frozenset()
    """`second owner`: two stores at one place are strangers. `retention`: it keeps every run for ever."""

    def make(self, place: Path, *, finished_kept: int | None = None) -> AbstractAsyncContextManager[State]:
        """Give a store at *place*; asked again for the same place, the same store as another process opens it."""
        raise NotImplementedError

    def _needs(self, capability: Lack) -> None:
        if capability in self.lacks:
            pytest.skip(f"{type(self).__name__} lacks: {capability}")

    @scenario
    async def test_a_store_that_says_that_it_never_waits_does_not(self, tmp_path: Path) -> None:
        """Nobody races it against a deadline."""
        author = Author()
        async with self.make(tmp_path) as state:
            if not may_wait(state):
                calls: tuple[Coroutine[object, object, object], ...] = (
                    state.acquire("r1", holder="a", seconds=LONG),
                    state.append("r1", 1, 0, "a-1", author.opening("hello")),
                    state.renew("r1", 1, seconds=LONG),
                    state.post("r1", Cancel()),
                    state.read("r1"),
                    state.load("r1"),
                    state.evidence("r1"),
                    state.runs(),
                    state.release("r1", 1),
                    state.erase("r1"),
                )

                assert all([answers_at_once(call) for call in calls])

    # --- the right to write

    @scenario
    async def test_it_declares_what_an_acknowledged_append_survives(self, tmp_path: Path) -> None:
        """Engines compare the class with what a definition requires, so it is one of three words."""
        async with self.make(tmp_path) as state:
            assert self.durability == state.durability

    @scenario
    async def test_a_new_run_is_taken_with_an_empty_journal(self, tmp_path: Path) -> None:
        """The first owner of a run that nobody knew has epoch 1 and no crash behind it."""
        async with self.make(tmp_path) as state:
            taken = await state.acquire("r1", holder="a", seconds=LONG)

            assert Lease("r1", 1, 0, LONG, 0) == taken
            assert [] == list(await state.load("r1"))

    @scenario
    async def test_an_unknown_run_is_not_created_unasked(self, tmp_path: Path) -> None:
        """Every call about a run that does not exist says so, and leaves it that way."""
        async with self.make(tmp_path) as state:
            assert await state.acquire("r1", holder="a", seconds=LONG, create=False) is None
            assert [] == list(await state.load("r1"))
            assert [] == list(await state.evidence("r1"))
            assert [] == list(await state.read("r1"))
            assert not await state.renew("r1", 1, seconds=LONG)
            await state.release("r1", 1)
            for refused in (state.post("r1", Cancel()), state.erase("r1")):
                with pytest.raises(KeyError):
                    await refused
            with pytest.raises(PortError, match="r1"):
                await state.append("r1", 1, 0, "a-1", Author().opening())
            assert await state.acquire("r1", holder="a", seconds=LONG, create=False) is None

    @pytest.mark.parametrize("holder", ["a", "b"])
    @scenario
    async def test_a_held_run_is_busy(self, tmp_path: Path, holder: str) -> None:
        """Nobody else gets it, nor its own holder a second time; the answer says how long to wait at most."""
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="a", seconds=LONG)

            answer = await state.acquire("r1", holder=holder, seconds=LONG)

            assert isinstance(answer, Busy)
            assert 0 < answer.retry_after <= LONG

    @scenario
    async def test_one_of_many_gets_the_run(self, tmp_path: Path) -> None:
        """Of 32 that ask at once, one has the lease and the others are told that it is busy."""
        async with self.make(tmp_path) as state:
            answers = await asyncio.gather(
                *[state.acquire("r1", holder=f"h{number}", seconds=LONG) for number in range(32)]
            )

            assert 1 == sum([isinstance(answer, Lease) for answer in answers])
            assert 31 == sum([isinstance(answer, Busy) for answer in answers])

    @scenario
    async def test_a_released_run_is_free_at_once_and_has_a_new_epoch(self, tmp_path: Path) -> None:
        """Epochs are never used again, also not for the same holder."""
        async with self.make(tmp_path) as state:
            await _open(state)

            await state.release("r1", 1)

            assert Lease("r1", 2, 1, LONG, 0) == await state.acquire("r1", holder="a", seconds=LONG)

    @scenario
    async def test_a_lease_that_ran_out_is_taken_over(self, tmp_path: Path) -> None:
        """The new owner has the next epoch; nothing that the old one says has an effect any more."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author, seconds=0)

            assert Lease("r1", 2, 1, LONG, 1) == await state.acquire("r1", holder="b", seconds=LONG)
            assert Fenced(2) == await state.append("r1", 1, 1, "a-2", author.turn())
            assert not await state.renew("r1", 1, seconds=LONG)
            await state.release("r1", 1)
            assert isinstance(await state.acquire("r1", holder="a", seconds=LONG), Busy)
            assert told(author.entries[:1]) == told(await state.load("r1"))

    @scenario
    async def test_renewing_extends_the_lease(self, tmp_path: Path) -> None:
        """A renewed lease is valid from now on, even if it had run out, as long as nobody took the run."""
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="a", seconds=0)

            assert await state.renew("r1", 1, seconds=LONG)
            assert isinstance(await state.acquire("r1", holder="b", seconds=LONG), Busy)

    @scenario
    async def test_a_lease_that_was_given_back_cannot_be_renewed(self, tmp_path: Path) -> None:
        """Who gave the run back has to take it again."""
        async with self.make(tmp_path) as state:
            await _open(state)
            await state.release("r1", 1)

            assert not await state.renew("r1", 1, seconds=LONG)
            assert isinstance(await state.acquire("r1", holder="b", seconds=LONG), Lease)

    @scenario
    async def test_crashes_are_counted_until_there_is_a_result(self, tmp_path: Path) -> None:
        """An owner that lets its lease run out has crashed; giving back is none; a result starts the count anew."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author, seconds=0)
            assert 1 == await _crashes(state, seconds=0)
            assert 2 == await _crashes(state, seconds=LONG)
            await state.append("r1", 3, 1, "c-1", author.write(TurnStarted(1), ModelAsked(1, 1, "auto")))
            await state.release("r1", 3)
            assert 2 == await _crashes(state, seconds=LONG)
            (head,) = await state.runs()
            assert 2 == head.crashes

            await state.append("r1", 4, 3, "d-1", author.write(ModelFailed(1, 1, "timeout", "slow", True, 1.0)))

            await state.release("r1", 4)
            assert 0 == await _crashes(state, seconds=LONG)

    @scenario
    async def test_a_run_that_was_opened_and_never_written_is_forgotten(self, tmp_path: Path) -> None:
        """Once it is given back it is as if it had not been."""
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="a", seconds=LONG)
            await state.post("r1", Cancel())

            await state.release("r1", 1)

            assert await state.acquire("r1", holder="b", seconds=LONG, create=False) is None

    @scenario
    async def test_an_owner_of_old_shares_its_epoch_with_nobody(self, tmp_path: Path) -> None:
        """Also where the run was given back before anything was written to it."""
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="stalled", seconds=0.0)
            await state.acquire("r1", holder="b", seconds=LONG)
            await state.release("r1", 2)

            assert Lease("r1", 3, 0, LONG, crashes=1) == await state.acquire("r1", holder="c", seconds=LONG)
            assert Fenced(3) == await state.append("r1", 1, 0, "a-1", Author().opening())

    @scenario
    async def test_a_cancelled_acquire_keeps_nothing(self, tmp_path: Path) -> None:
        """Whoever stops waiting for a run does not hold it up, at whatever moment."""
        async with self.make(tmp_path) as state:
            await _open(state)
            await state.release("r1", 1)
            for steps in range(6):
                taken = await cut(state.acquire("r1", holder="a", seconds=LONG), steps)
                if isinstance(taken, Lease):
                    await state.release("r1", taken.epoch)

                lease = await state.acquire("r1", holder="b", seconds=LONG)

                assert isinstance(lease, Lease), steps
                await state.release("r1", lease.epoch)

    # --- the journal

    @scenario
    async def test_what_was_appended_is_loaded_as_it_was(self, tmp_path: Path) -> None:
        """Kind, schema, body, place, time and evidence, from any entry on."""
        author = Author()
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="a", seconds=LONG)

            assert Appended(1) == await state.append("r1", 1, 0, "a-1", author.opening())
            assert Appended(7) == await state.append("r1", 1, 1, "a-2", author.turn())

            for after in (0, 1, 5, 7, 8, 1000):
                assert told(author.entries[after:]) == told(await state.load("r1", after))

    @scenario
    async def test_an_append_at_another_length_is_a_conflict(self, tmp_path: Path) -> None:
        """The journal is as it was, and the answer says how long."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author)
            wrong = author.turn()
            for expected in (0, 2, 7):
                assert Conflict(1) == await state.append("r1", 1, expected, f"x-{expected}", wrong)

            assert told(author.entries[:1]) == told(await state.load("r1"))

    @scenario
    async def test_two_writers_with_one_epoch_cannot_both_write(self, tmp_path: Path) -> None:
        """Of 32 appends for the same place one is written, whole, and the others are told of the conflict."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author)
            turn = author.turn()

            answers = await asyncio.gather(*[state.append("r1", 1, 1, f"w{number}-1", turn) for number in range(32)])

            assert 1 == answers.count(Appended(7))
            assert 31 == answers.count(Conflict(7))
            assert told(author.entries) == told(await state.load("r1"))

    @scenario
    async def test_a_repeated_append_is_answered_as_it_was_and_written_once(self, tmp_path: Path) -> None:
        """A lost acknowledgement is cured by asking again, whatever was written since and whoever owns the run now."""
        author = Author()
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="a", seconds=0)
            first, second, third = author.opening(), author.turn(), author.turn()
            await state.append("r1", 1, 0, "a-1", first)
            assert Appended(1) == await state.append("r1", 1, 0, "a-1", first)
            await state.append("r1", 1, 1, "a-2", second)
            assert Appended(1) == await state.append("r1", 1, 0, "a-1", first)
            assert Appended(7) == await state.append("r1", 1, 1, "a-2", second)
            await state.acquire("r1", holder="b", seconds=LONG)
            assert Appended(7) == await state.append("r1", 1, 1, "a-2", second)
            await state.append("r1", 2, 7, "b-1", third)

            assert Appended(1) == await state.append("r1", 1, 0, "a-1", first)
            assert Appended(7) == await state.append("r1", 1, 1, "a-2", second)
            assert Fenced(2) == await state.append("r1", 1, 7, "a-3", third)
            assert told(author.entries) == told(await state.load("r1"))

    @scenario
    async def test_the_fence_is_told_before_the_conflict(self, tmp_path: Path) -> None:
        """An old owner that is also behind learns that it is no owner any more."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author, seconds=0)
            await state.acquire("r1", holder="b", seconds=LONG)

            assert Fenced(2) == await state.append("r1", 1, 0, "a-9", author.turn())

    @scenario
    async def test_a_cancelled_append_was_written_or_not_and_asking_again_tells(self, tmp_path: Path) -> None:
        """Cut at any moment, the append is whole or absent; its repetition makes it whole, once."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author)
            for steps in range(6):
                before = len(author.entries)
                turn = author.turn()
                await cut(state.append("r1", 1, before, f"cut-{before}", turn), steps)
                found = len(await state.load("r1"))
                assert found in (before, before + 6)

                assert Appended(before + 6) == await state.append("r1", 1, before, f"cut-{before}", turn)

            assert told(author.entries) == told(await state.load("r1"))

    @scenario
    async def test_many_runs_are_written_at_once(self, tmp_path: Path) -> None:
        """32 owners append five times each; every journal is complete, in order, and its own."""
        authors = [Author(f"r{number}") for number in range(32)]

        async def write(state: State, author: Author) -> None:
            lease = await state.acquire(author.run_id, holder=author.run_id, seconds=LONG)
            assert isinstance(lease, Lease)
            await state.append(author.run_id, lease.epoch, 0, "a-0", author.opening())
            for number in range(1, 5):
                expected = len(author.entries)
                await state.append(author.run_id, lease.epoch, expected, f"a-{number}", author.turn())
            await state.release(author.run_id, lease.epoch)

        async with self.make(tmp_path) as state:
            await asyncio.gather(*[write(state, author) for author in authors])

            for author in authors:
                assert told(author.entries) == told(await state.load(author.run_id))

    @scenario
    async def test_nothing_is_shared_with_the_caller(self, tmp_path: Path) -> None:
        """Whatever a caller does to what it gave or got, the store holds what was acknowledged."""
        author = Author()
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="a", seconds=LONG)
            given = author.opening()
            kept = told(given)
            await state.append("r1", 1, 0, "a-1", given)
            given.clear()
            got = await state.load("r1")
            if isinstance(got, list):
                got.clear()

            assert kept == told(await state.load("r1"))

    @pytest.mark.parametrize("size", [0, 1, 4_000, 70_000, 1 << 20])
    @scenario
    async def test_content_may_be_large(self, tmp_path: Path, size: int) -> None:
        """A body of a mebibyte comes back byte for byte."""
        author = Author()
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="a", seconds=LONG)
            await state.append("r1", 1, 0, "a-1", author.opening("é" * (size // 2)))
            await state.append("r1", 1, 1, "a-2", author.turn("\\" * size))

            assert told(author.entries) == told(await state.load("r1"))

    @scenario
    async def test_an_append_may_be_long(self, tmp_path: Path) -> None:
        """A thousand entries are one append."""
        author = Author()
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="a", seconds=LONG)
            many: list[Entry] = author.opening()
            for _ in range(200):
                many += author.turn()

            assert Appended(1201) == await state.append("r1", 1, 0, "a-1", many)
            assert told(many) == told(await state.load("r1"))

    @pytest.mark.parametrize("text", AWKWARD)
    @scenario
    async def test_any_text_names_a_run_and_fills_it(self, tmp_path: Path, text: str) -> None:
        """Ids, holders, append ids, inputs and words are data and nothing else."""
        author, other = Author(text), Author(f"{text}.")
        async with self.make(tmp_path) as state:
            for each in (author, other):
                await state.acquire(each.run_id, holder=text, seconds=LONG)
                await state.append(each.run_id, 1, 0, text, each.opening(text))
            await state.post(text, Steer(UserMessage(text)))

            assert told(author.entries) == told(await state.load(text))
            assert told(other.entries) == told(await state.load(other.run_id))
            assert [(1, Steer(UserMessage(text)))] == list(await state.read(text))
            assert [] == list(await state.read(other.run_id))
            assert [other.run_id, text] == [head.run_id for head in await state.runs()]

    # --- evidence

    @scenario
    async def test_evidence_is_the_projection_of_the_journal(self, tmp_path: Path) -> None:
        """It is one item for each entry, in a chain that verifies against the facts, readable from any item on."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author)
            await state.append("r1", 1, 1, "a-2", author.turn())

            evidence = await state.evidence("r1")

            pairs = [(fact, entry.body) for fact, entry in zip(author.facts, author.entries, strict=True)]
            assert author.entries[-1].item[-1] == verify(evidence, pairs, salt=author.salt)
            for after in (1, 6, 7, 100):
                assert list(evidence[after:]) == list(await state.evidence("r1", after))

    @scenario
    async def test_evidence_holds_no_content(self, tmp_path: Path) -> None:
        """What was said and given does not show in it."""
        author = Author()
        async with self.make(tmp_path) as state:
            await state.acquire("r1", holder="a", seconds=LONG)
            await state.append("r1", 1, 0, "a-1", author.opening("canary-in"))
            await state.append("r1", 1, 1, "a-2", author.turn("canary-out"))

            assert "canary" not in repr(await state.evidence("r1"))

    # --- the inbox

    @scenario
    async def test_every_word_is_read_as_it_was_posted(self, tmp_path: Path) -> None:
        """In order, with positions from 1, from any position on, whoever holds the run."""
        async with self.make(tmp_path) as state:
            await _open(state)

            positions = [await state.post("r1", word) for word in WORDS]

            assert list(range(1, len(WORDS) + 1)) == positions
            for after in (0, 1, len(WORDS) - 1, len(WORDS), 1000):
                expected = list(enumerate(WORDS, start=1))[after:]
                assert expected == list(await state.read("r1", after))

    @scenario
    async def test_many_may_post_at_once(self, tmp_path: Path) -> None:
        """Every word of 32 people has a position of its own, and none is lost."""
        async with self.make(tmp_path) as state:
            await _open(state)

            positions = await asyncio.gather(*[state.post("r1", Deny("e", f"{number}")) for number in range(32)])

            assert list(range(1, 33)) == sorted(positions)
            by_position = {position: Deny("e", f"{number}") for number, position in enumerate(positions)}
            assert by_position == dict(await state.read("r1"))

    # --- many runs

    @pytest.mark.parametrize(
        ("facts", "status", "reason"),
        [
            ([], "running", ""),
            ([RunSuspended("approval")], "suspended", "approval"),
            ([RunSuspended("budget", "deadline"), RunResumed(9, None)], "running", ""),
            ([RunCompleted("done")], "completed", ""),
            ([RunFailed(Fault("output", "it never was valid"))], "failed", "output"),
            ([RunCancelled(())], "cancelled", ""),
        ],
    )
    @scenario
    async def test_a_head_tells_how_a_run_stands(
        self, tmp_path: Path, facts: Sequence[Fact], status: str, reason: str
    ) -> None:
        """Status and reason follow from what was appended last."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author)
            if facts:
                await state.append("r1", 1, 1, "a-2", author.write(*facts))

            (head,) = await state.runs()

            assert ("r1", "clerk", "f" * 64) == (head.run_id, head.definition, head.fingerprint)
            assert (status, reason, 1 + len(facts)) == (head.status, head.reason, head.version)
            assert (author.entries[0].at, author.entries[-1].at) == (head.opened_at, head.updated_at)
            assert (1, 0) == (head.epoch, head.crashes)

    @scenario
    async def test_a_migrated_run_has_a_new_fingerprint(self, tmp_path: Path) -> None:
        """The head names the definition that the run goes on under."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author)
            await state.append("r1", 1, 1, "a-2", author.write(RunMigrated("0" * 64)))

            (head,) = await state.runs()

            assert ("clerk", "0" * 64, "running") == (head.definition, head.fingerprint, head.status)

    @scenario
    async def test_runs_are_listed_newest_first_and_filtered(self, tmp_path: Path) -> None:
        """By status, definition and time of the newest entry, up to a limit; one without entries is not listed."""
        async with self.make(tmp_path) as state:
            for number in range(6):
                author = Author(f"r{number}", "clerk" if number % 2 else "payer", at=AT + 100 * number)
                await _open(state, author)
                if number > 2:
                    await state.append(f"r{number}", 1, 1, "a-2", author.write(RunCompleted(number)))
            await state.acquire("r6", holder="a", seconds=LONG)

            async def listed(**wanted: object) -> list[str]:
                return [head.run_id for head in await state.runs(**wanted)]  # type: ignore[arg-type]

            assert ["r5", "r4", "r3", "r2", "r1", "r0"] == await listed()
            assert ["r5", "r4"] == await listed(limit=2)
            assert [] == await listed(limit=0)
            assert ["r2", "r1", "r0"] == await listed(status="running")
            assert ["r5", "r3", "r1"] == await listed(definition="clerk")
            assert ["r5", "r4", "r3"] == await listed(since=AT + 250)
            assert ["r4"] == await listed(status="completed", definition="payer", since=AT + 400, limit=3)
            assert [] == await listed(definition="clerk' OR 1=1 --")

    @scenario
    async def test_an_erased_run_has_no_content_and_its_evidence_verifies(self, tmp_path: Path) -> None:
        """Bodies and words are gone; places, times, evidence and head are as they were."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author)
            await state.append("r1", 1, 1, "a-2", author.turn())
            await state.post("r1", Steer(UserMessage("a secret")))
            before = await state.evidence("r1")

            for _ in range(2):
                await state.erase("r1")

                assert [(*each[:2], b"", *each[3:]) for each in told(author.entries)] == told(await state.load("r1"))
                assert [] == list(await state.read("r1"))
                assert list(before) == list(await state.evidence("r1"))
                assert verify(before) != GENESIS
                (head,) = await state.runs()
                assert ("clerk", 7) == (head.definition, head.version)
            assert 2 == await state.post("r1", Cancel())

    @scenario
    async def test_whoever_holds_a_run_that_is_erased_is_fenced(self, tmp_path: Path) -> None:
        """Nothing is written to it by somebody who does not know."""
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author)

            await state.erase("r1")

            assert isinstance(await state.append("r1", 1, 1, "a-2", author.turn()), Fenced)
            assert not await state.renew("r1", 1, seconds=LONG)

    @scenario
    async def test_the_oldest_finished_runs_go_first(self, tmp_path: Path) -> None:
        """A bounded store keeps the newest of the runs that ended, and every run that has not."""
        self._needs("retention")
        async with self.make(tmp_path, finished_kept=2) as state:
            for number in range(6):
                author = Author(f"r{number}")
                await _open(state, author)
                if number != 1:
                    await state.append(author.run_id, 1, 1, "a-2", author.write(RunCompleted(number)))
                await state.release(author.run_id, 1)

            assert ["r5", "r4", "r1"] == [head.run_id for head in await state.runs()]
            assert [] == list(await state.load("r0"))
            assert [] == list(await state.evidence("r0"))
            assert await state.acquire("r0", holder="a", seconds=LONG, create=False) is None

    # --- several owners of one store

    @scenario
    async def test_another_owner_finds_what_was_acknowledged(self, tmp_path: Path) -> None:
        """Journal, evidence, inbox, lease, head and append ids are in the store, not in the object."""
        self._needs("second owner")
        author = Author()
        async with self.make(tmp_path) as state:
            await _open(state, author)
            await state.append("r1", 1, 1, "a-2", author.turn())
            await state.post("r1", WORDS[0])
            heads = await state.runs()
        async with self.make(tmp_path) as again:
            assert told(author.entries) == told(await again.load("r1"))
            assert [entry.evidence for entry in author.entries] == list(await again.evidence("r1"))
            assert [(1, WORDS[0])] == list(await again.read("r1"))
            assert list(heads) == list(await again.runs())
            assert isinstance(await again.acquire("r1", holder="b", seconds=LONG), Busy)
            assert Appended(7) == await again.append("r1", 1, 1, "a-2", author.entries[1:])
            assert Appended(13) == await again.append("r1", 1, 7, "a-3", author.turn())

    @scenario
    async def test_two_owners_at_once_see_one_store(self, tmp_path: Path) -> None:
        """What one acknowledged, the other reads; what one holds, the other cannot take."""
        self._needs("second owner")
        author = Author()
        async with self.make(tmp_path) as one, self.make(tmp_path) as two:
            await _open(one, author)

            assert told(author.entries) == told(await two.load("r1"))
            assert isinstance(await two.acquire("r1", holder="b", seconds=LONG), Busy)
            assert 1 == await two.post("r1", WORDS[0])
            assert [(1, WORDS[0])] == list(await one.read("r1"))
            await one.release("r1", 1)
            assert isinstance(await two.acquire("r1", holder="b", seconds=LONG), Lease)
            assert Fenced(2) == await one.append("r1", 1, 1, "a-2", author.turn())

    def test_a_store_belongs_to_no_loop(self, tmp_path: Path) -> None:
        """It is made outside of any loop and used by one after another."""
        author = Author()
        store = self.make(tmp_path)

        async def first() -> State:
            state = await store.__aenter__()
            await _open(state, author)
            return state

        async def second(state: State) -> None:
            assert told(author.entries) == told(await state.load("r1"))
            assert Appended(7) == await state.append("r1", 1, 1, "a-2", author.turn())
            await store.__aexit__(None, None, None)

        state = asyncio.run(asyncio.wait_for(first(), LONG))
        asyncio.run(asyncio.wait_for(second(state), LONG))


async def _open(state: State, author: Author | None = None, *, seconds: float = LONG) -> None:
    """Take a run and write its first entry."""
    author = author or Author()
    lease = await state.acquire(author.run_id, holder="a", seconds=seconds)
    assert isinstance(lease, Lease)
    assert Appended(1) == await state.append(author.run_id, lease.epoch, 0, "a-1", author.opening())


async def _crashes(state: State, *, seconds: float) -> int:
    """Take the run and tell how many crashes the lease speaks of."""
    lease = await state.acquire("r1", holder="a", seconds=seconds)
    assert isinstance(lease, Lease)
    return lease.crashes
