"""A payment is made, its process is killed before it can write that down, and the money is not paid twice.

    make demo-crash

plays it with the real command, each line of it in a process of its own, over one SQLite file. The model is a recorded
conversation, so that everybody sees the same; the payments are lines of a file; and the kill is a kill -9.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from turnwright import AgentDefinition, tool

# --- the agent: one tool, which a person must approve and which is never repeated (`replay="never"` is the default)

BANK = Path("payments.txt")


@tool(approval="required")
def pay(to: str, cents: int) -> str:
    """Pay money out."""
    with BANK.open("a", encoding="utf-8") as bank:
        bank.write(f"{cents} cents to {to}\n")
    if "POWER_FAILS" in os.environ:  # now: the money has moved, and nobody has written that down
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {cents} cents to {to}"


definition = AgentDefinition("payer", "You pay back what is right.", tools=[pay])

# --- the demonstration


def main(folder: Path) -> None:
    """Play it in *folder*, where nothing is yet."""
    here = Path(__file__)
    shutil.copy(here, folder / "payer.py")
    shutil.copy(here.parent / "recordings" / "demo_crash.jsonl", folder / "talk.jsonl")
    store, replay = ["--state", "sqlite:runs.db"], ["--replay", "talk.jsonl"]

    def turnwright(*words: str, **environ: str) -> str:
        settings = "".join([f"{name}={value} " for name, value in environ.items()])
        print(f"\n$ {settings}turnwright {' '.join([f'{each!r}' if ' ' in each else each for each in words])}")
        command = [str(Path(sys.executable).with_name("turnwright")), *words]
        ended = subprocess.run(
            command, cwd=folder, env={**os.environ, **environ}, capture_output=True, text=True, check=False
        )
        print(ended.stdout + ended.stderr, end="", flush=True)
        return ended.stdout if ended.returncode >= 0 else signal.Signals(-ended.returncode).name

    def say(words: str) -> None:
        made = (folder / BANK).read_text(encoding="utf-8").splitlines() if (folder / BANK).exists() else []
        print(f"\n# {words} Payments made: {len(made)}.", flush=True)

    out = turnwright("run", "payer.py", "The teapot broke: pay anna 45 euros back", *store, *replay)
    run = re.findall(r"^run (\S+)$", out, re.MULTILINE)[0]
    say("The run waits for a person.")
    turnwright("approve", run, "1.0", *store, "--by", "ben")
    killed = turnwright("resume", "payer.py", run, *store, *replay, POWER_FAILS="1")
    say(f"The process was killed ({killed}) right after it paid.")
    print("# Its lease of the run must run out first, which takes up to 30 seconds.", flush=True)
    turnwright("resume", "payer.py", run, *store, *replay, "--wait", "60")
    say("The run waits in doubt: nobody but the bank knows.")
    turnwright("resolve", run, "1.0", *store, "--by", "ben", "--happened", "paid 4500 cents to anna")
    turnwright("resume", "payer.py", run, *store, *replay)
    say("The run is completed.")
    turnwright("why", run, *store)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as folder:
            main(Path(folder))
