"""Deliberate breaks of what keeps runs from being lost or paid twice, and which tests must see each.

Rule: a break is one text of one file in place of another. A text that is not found exactly once is an error, so that
the list stays true (test_breaks.py); that every break is seen is proven by `make proof`.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

__all__ = ["BREAKS", "Break"]

CORE, SQLITE = "src/turnwright", "adapters/turnwright_adapters/sqlite"
RECOVERY = "tests/driver/test_recovery.py"
DEADLINE = "tests/driver/test_deadline.py"
APPROVAL = "tests/driver/test_approval.py"
TOOLS = "tests/driver/test_tools.py"
KEYS = "tests/driver/test_idempotency.py"
BUDGETS = "tests/driver/test_budgets.py"
RUN = "tests/driver/test_run.py"
INBOX = "tests/driver/test_inbox.py"
STATE = "tests/core/test_state.py"
MEMORY = "tests/contracts/test_memory.py"
ON_SQLITE = "tests/contracts/test_sqlite.py"


@frozen
class Break:
    """In *path*, *new* in place of *old*; one of the tests in *seen_by* must fail of it."""

    name: str
    path: str
    old: str
    new: str
    seen_by: str


BREAKS: Final = (
    # --- what comes next
    Break(
        "a never tool runs again after a crash",
        f"{CORE}/decide.py",
        'if tool is not None and tool.replay != "never" and attempt < tool.max_attempts:',
        "if tool is not None and attempt < tool.max_attempts:",
        RECOVERY,
    ),
    Break(
        "an idempotent tool runs once too often",
        f"{CORE}/decide.py",
        'tool.replay != "never" and attempt < tool.max_attempts:',
        'tool.replay != "never" and attempt <= tool.max_attempts:',
        RECOVERY,
    ),
    Break(
        "a call runs on an approval that expired",
        f"{CORE}/decide.py",
        "requested.expires_at is not None and state.now >= requested.expires_at:",
        "requested.expires_at is not None and state.now < 0:",
        APPROVAL,
    ),
    Break(
        "an approval of other arguments counts",
        f"{CORE}/decide.py",
        "if word.digest is not None and word.digest != digest:",
        "if word.digest is None and word.digest == digest:",
        APPROVAL,
    ),
    Break(
        "an approval of too low a level counts",
        f"{CORE}/decide.py",
        "if needed > 1 and (word.level or 0) < needed:",
        "if needed > 99 and (word.level or 0) < needed:",
        APPROVAL,
    ),
    Break(
        "an approval that came too late counts",
        f"{CORE}/decide.py",
        "if call.requested.expires_at is not None and now >= call.requested.expires_at:",
        "if call.requested.expires_at is not None and now < 0:",
        APPROVAL,
    ),
    Break(
        "a sequential call does not wait",
        f"{CORE}/decide.py",
        "held = held or (sequential and earlier_open)",
        "held = held and sequential and earlier_open",
        TOOLS,
    ),
    Break(
        "an allowance of tool calls is ignored",
        f"{CORE}/decide.py",
        "            elif left > 0:\n",
        "            elif left > -99:\n",
        f"{TOOLS} {BUDGETS}",
    ),
    Break(
        "the calls of a truncated answer run",
        f"{CORE}/decide.py",
        'if answer.stop_reason == "length":\n        return Wave(',
        'if answer.stop_reason == "never":\n        return Wave(',
        f"{TOOLS} tests/driver/test_output.py",
    ),
    Break(
        "a cancelled run forgets what is in doubt",
        f"{CORE}/decide.py",
        "effects = tuple([state.effect_id(call.turn, call.index) for call in doubted])",
        "effects = ()",
        f"{INBOX} tests/driver/test_cancellation.py",
    ),
    Break(
        "a run ends over a message that waits",
        f"{CORE}/decide.py",
        "if state.answer is not None and not state.steering and not state.follow_ups:",
        "if state.answer is not None:",
        INBOX,
    ),
    Break(
        "a call runs under another contract than it was admitted under",
        f"{CORE}/decide.py",
        'call.admitted.contract not in ("", definition.contracts.get(call.admitted.name)):',
        'call.admitted.contract == "never":',
        RUN,
    ),
    # --- the fold
    Break(
        "the fold takes an approval of another digest",
        f"{CORE}/state.py",
        "if not call.waits or call.requested is None or call.requested.digest != fact.digest:",
        "if not call.waits or call.requested is None:",
        STATE,
    ),
    Break(
        "the fold takes a start without leave",
        f"{CORE}/state.py",
        "if call.admitted is None or (call.admitted.needs_approval and not call.approved):",
        "if call.admitted is None:",
        STATE,
    ),
    Break(
        "the fold takes an entry after the end",
        f"{CORE}/state.py",
        "    if state.ended is not None:\n        raise JournalError(state.length, f",
        "    if state.ended is state:\n        raise JournalError(state.length, f",
        STATE,
    ),
    # --- the driver
    Break(
        "an effect starts before its intent is acknowledged",
        f"{CORE}/driver.py",
        "            await self._race.run(self.flush(), *self.written_to)\n        if self._ownership.is_due",
        "            pass\n        if self._ownership.is_due",
        f"{RECOVERY} tests/laws/test_crash.py",
    ),
    Break(
        "an append that is sent again has another id",
        f"{CORE}/driver.py",
        'self._append(f"{self._holder}-{self._appends}", entries)',
        "self._append(self.ports.ids.new_id(), entries)",
        f"{RECOVERY} tests/driver/test_ports.py",
    ),
    Break(
        "a conflict is taken for an acknowledgement",
        f"{CORE}/driver.py",
        "                case Conflict(version):\n                    raise LostLease(",
        "                case Conflict(version):\n                    LostLease(",
        RECOVERY,
    ),
    Break(
        "a fenced owner goes on",
        f"{CORE}/driver.py",
        "                case Fenced():\n                    raise LostLease(",
        "                case Fenced():\n                    LostLease(",
        RECOVERY,
    ),
    Break(
        "an owner goes on though the lease was not renewed",
        f"{CORE}/leasing.py",
        "seconds=LEASE_SECONDS):\n            raise LostLease(",
        "seconds=LEASE_SECONDS):\n            LostLease(",
        DEADLINE,
    ),
    Break(
        "an owner dispatches on a lease that may have run out",
        f"{CORE}/leasing.py",
        "if self._clock.monotonic() >= self._valid_until:",
        "if self._clock.monotonic() < 0:",
        DEADLINE,
    ),
    Break(
        "an owner dispatches though its lease ran out while the key was asked for",
        f"{CORE}/performer.py",
        "        self._fence()  # its key",
        "        # its key",
        DEADLINE,
    ),
    Break(
        "a stored call that was changed is believed",
        f"{CORE}/driver.py",
        "if not named or fact.digest != digest(fact.arguments):",
        "if not named:",
        f"{RECOVERY} {APPROVAL}",
    ),
    Break(
        "results wait in memory for slower siblings",
        f"{CORE}/driver.py",
        "        if running and results:\n",
        "        if running and results and not results:\n",
        f"{RECOVERY} {TOOLS}",
    ),
    Break(
        "what a fenced owner saw is lost",
        f"{CORE}/driver.py",
        "await self.ports.state.post(self.run_id, LateResult(",
        "(self.run_id, LateResult(",
        f"{RECOVERY} tests/driver/test_cancellation.py",
    ),
    Break(
        "a run is not given back",
        f"{CORE}/driver.py",
        "            await self._race.last(giving, self.ports.state)\n",
        "            giving.close()\n",
        f"{RECOVERY} {RUN}",
    ),
    # --- what is performed
    Break(
        "a key that is in use does not stop the tool",
        f"{CORE}/performer.py",
        'return ToolOutput("not executed: this key is in use, or what became of it is unknown", is_error=True)',
        "pass",
        KEYS,
    ),
    Break(
        "a key of other arguments does not stop the tool",
        f"{CORE}/performer.py",
        'return ToolOutput("not executed: this key was used with other arguments", is_error=True)',
        "pass",
        KEYS,
    ),
    Break(
        "a result is not kept under its key",
        f"{CORE}/performer.py",
        "await idempotency.commit(namespace, name, _kept(value))",
        "await idempotency.mark_unknown(namespace, name)",
        KEYS,
    ),
    Break(
        "the approvals port decides above its level",
        f"{CORE}/performer.py",
        "if answer.approved and call.needs_approval > 1 and (answer.level or 0) < call.needs_approval:",
        "if answer.approved and call.needs_approval > 99:",
        APPROVAL,
    ),
    # --- opening a run
    Break(
        "a known run takes another input",
        f"{CORE}/run.py",
        "if opening is not None and encode(plain(opening.input)) != encode(plain(opened.input)):",
        "if opening is not None and opening is opened:",
        RUN,
    ),
    Break(
        "a store below what is required serves",
        f"{CORE}/run.py",
        "if CLASSES.index(given) < CLASSES.index(needed):",
        "if CLASSES.index(given) < 0:",
        "tests/driver/test_admission_of_ports.py",
    ),
    Break(
        "a run that kills its owners is tried for ever",
        f"{CORE}/run.py",
        "if driver.crashes < POISONED or",
        "if driver.crashes < 10**9 or",
        RUN,
    ),
    # --- budgets
    Break(
        "a denied reservation does not stop the effect",
        f"{CORE}/spending.py",
        "            if isinstance(held, Denied):\n                denied.append((command, held))\n",
        "            if isinstance(held, Denied):\n                pass\n",
        BUDGETS,
    ),
    Break(
        "a budgets port that fails grants everything",
        f"{CORE}/spending.py",
        "return held if isinstance(held, Reserved) else UNAVAILABLE",
        "return Reserved()",
        BUDGETS,
    ),
    Break(
        "what was dispatched is released",
        f"{CORE}/spending.py",
        "if reservation.dispatched or reservation.actual is not None:",
        "if reservation.actual is not None:",
        BUDGETS,
    ),
    # --- the store in memory
    Break(
        "memory writes for an owner that was fenced",
        f"{CORE}/memory.py",
        "        if run.epoch != epoch:\n            return Fenced(run.epoch)\n",
        "",
        MEMORY,
    ),
    Break(
        "memory writes a repeated append twice",
        f"{CORE}/memory.py",
        "        if append_id in run.appended:\n            return Appended(run.appended[append_id])\n",
        "",
        MEMORY,
    ),
    Break(
        "memory writes at the wrong place",
        f"{CORE}/memory.py",
        "        if len(run.entries) != expected:\n            return Conflict(len(run.entries))\n",
        "",
        MEMORY,
    ),
    Break(
        "memory gives one run to two owners",
        f"{CORE}/memory.py",
        "            if run.held_until > now:\n                return Busy(run.held_until - now)\n",
        "",
        MEMORY,
    ),
    Break(
        "a memory account is overdrawn",
        f"{CORE}/memory.py",
        "account.settled + account.reserved + amount > account.limit:",
        "account.settled + amount > account.limit:",
        MEMORY,
    ),
    Break(
        "a key in memory serves other arguments",
        f"{CORE}/memory.py",
        "        if known.digest != digest:\n            return Mismatch()\n",
        "",
        MEMORY,
    ),
    # --- the store on SQLite
    Break(
        "SQLite writes for an owner that was fenced",
        f"{SQLITE}/state.py",
        "return Fenced(run.epoch) if run.epoch != epoch else Conflict(version)",
        "return Conflict(version)",
        ON_SQLITE,
    ),
    Break(
        "SQLite does not know a repeated append",
        f"{SQLITE}/state.py",
        "            if written is not None:\n                return Appended(written[0] - start)\n",
        "",
        ON_SQLITE,
    ),
    Break(
        "SQLite gives one run to two owners",
        f"{SQLITE}/state.py",
        "            if run.expires > now:\n                return Busy(run.expires - now)\n",
        "",
        ON_SQLITE,
    ),
    Break(
        "SQLite answers before the disk has it",
        f"{SQLITE}/database.py",
        'synchronous = "FULL" if any([order.durable for order in orders]) else "NORMAL"',
        'synchronous = "NORMAL"',
        "tests/adapters/test_sqlite.py",
    ),
    Break(
        "an account in a database is overdrawn",
        "adapters/turnwright_adapters/_accounts.py",
        "if amount > left[scope, axis]:",
        "if amount > left[scope, axis] + amount:",
        ON_SQLITE,
    ),
)
