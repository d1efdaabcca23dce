"""The errors a person must act on."""

from typing import ClassVar

__all__ = [
    "CadenceViolation",
    "CadenceWarning",
    "ConfigError",
    "RecordingError",
    "SystemFailed",
    "TraingenError",
]


class TraingenError(Exception):
    """An error a person must act on.

    The message is one clear line: where, expected, found, way out. Commands print it without
    a traceback and end with `exit_code`: 2, bad input or no judgement, unless a subclass says
    otherwise.
    """

    exit_code: ClassVar[int] = 2


class RecordingError(TraingenError):
    """A recording cannot be written or read as format 1 demands."""


class ConfigError(TraingenError):
    """A pair file, an option or an argument cannot be used as given."""


class SystemFailed(TraingenError):
    """A system raised or stalled before its run was over."""


class CadenceViolation(TraingenError):
    """A learning-rate scheduler does not run at the cadence that was expected: a fail, exit code 1.

    The message holds every finding with the lines to write instead, one paragraph each.
    """

    exit_code: ClassVar[int] = 1


class CadenceWarning(UserWarning):
    """A finding about a scheduler's cadence that does not stop the training."""
