"""Which model answers: what `-m` names, or a recording."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from turnwright.cli.console import Screen
from turnwright.cli.exits import CommandError
from turnwright.cli.loop import EventLoop
from turnwright.errors import MissingExtra, PortError
from turnwright.models import LOCAL, model_of
from turnwright.ports import Model

__all__ = ["DEFAULT", "Answers", "choose", "default_model"]

DEFAULT: Final = "openai:gpt-4.1-mini"
"""What answers when nothing is named and OPENAI_API_KEY is set."""


@frozen(kw_only=True)
class Answers:
    """Where answers come from: the model *name*, the default if None, recorded or not; or a recording to replay."""

    name: str | None = None
    record: Path | None = None
    replay: Path | None = None


def choose(answers: Answers, recording: Path | None, *, loop: EventLoop, screen: Screen) -> tuple[str, Model]:
    """Return the name of what answers, and it, open until *loop* is left.

    Where nothing was named and the local model cannot be had, *recording* is replayed, which is said so that nobody
    misses it.
    """
    if answers.replay is not None:
        if answers.name is not None or answers.record is not None:
            raise CommandError("--replay asks no model; leave out -m and --record")
        return f"replay:{answers.replay.name}", _recorded(answers.replay)
    name = answers.name or default_model(os.environ)
    try:
        model = model_of(name, os.environ)
        if name == LOCAL:
            # No spinner: a first start shows how far it has fetched the weights.
            screen.note("starting the local model")
        loop.open(model)
    except ValueError as error:
        raise CommandError(f"-m {error}") from error
    except (PortError, MissingExtra) as error:
        if answers != Answers():
            raise CommandError(f"-m {name}: {error}") from error
        if recording is None:
            raise CommandError(f"no model: set OPENAI_API_KEY, or name one with -m provider:model ({error})") from error
        screen.warn(
            [
                "NO MODEL ANSWERS HERE: this replays a recorded conversation.",
                f"The local model cannot be had: {error}",
                "Set OPENAI_API_KEY, or name a model with -m provider:model, and run it again.",
            ]
        )
        return f"replay:{recording.name}", _recorded(recording)
    if answers.record is None:
        return name, model
    return name, _recorded(answers.record, model)


def default_model(environ: Mapping[str, str]) -> str:
    """Return the name of the model that answers when none is named."""
    return DEFAULT if environ.get("OPENAI_API_KEY") else LOCAL


def _recorded(path: Path, model: Model | None = None) -> Model:
    """Return what replays the recording at *path*, and with *model* also adds to it what it lacks."""
    from turnwright.testing import RecordedModel

    if model is None and not path.is_file():
        raise CommandError(f"no recording {path}; make one with --record {path}")
    if not path.parent.is_dir():
        raise CommandError(f"--record {path}: there is no directory {path.parent}")
    try:
        return RecordedModel(path, model=model)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CommandError(f"{path} is not a recording: {error}") from error
