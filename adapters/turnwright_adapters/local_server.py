"""The child process that serves the embedded model: `python -m turnwright_adapters.local_server WEIGHTS`.

Rule: it lives no longer than its parent. It is told an API key in one line on its standard input, says the address it
listens on in one line once the model is loaded, and ends when its standard input closes.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import threading
from pathlib import Path

_PROMPT_AND_ANSWER_TOKENS = 8192


def _end_with_parent() -> None:
    threading.Thread(target=_end_when_input_closes, daemon=True).start()
    # The library holds the interpreter lock while it loads the model, so that the thread cannot run: the kernel shall
    # send SIGIO, which ends us at once. Where SIGIO does nothing by default, the thread ends us once it is loaded.
    fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    # The parent may have ended before SIGIO was armed.
    if select.select([0], [], [], 0)[0]:
        os._exit(0)


def _end_when_input_closes() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


def main(weights: str) -> None:
    """Serve *weights* until the standard input closes."""
    key = os.read(0, 4096).decode().strip()
    _end_with_parent()
    from xllamacpp import CommonParams, Server  # pyright: ignore[reportAttributeAccessIssue] - it ships no types

    params = CommonParams()
    params.model.path = weights
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.n_ctx = _PROMPT_AND_ANSWER_TOKENS
    params.n_parallel = 1
    params.n_gpu_layers = 0
    # More threads than idle cores make it many times slower.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.use_jinja = True
    params.offline = True
    params.ui = False
    params.model_alias = {Path(weights).stem}
    server = Server(params)
    os.write(1, f"{server.listening_address}\n".encode())
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
