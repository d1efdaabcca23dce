"""The errors a person must act on."""

__all__ = ["ConfigError", "RecordingError", "SystemFailed", "TraingenError"]


class TraingenError(Exception):
    """An error a person must act on.

    The message is one clear line: where, expected, found, way out. Commands print it without
    a traceback and end with exit code 2.
    """


class RecordingError(TraingenError):
    """A recording cannot be written or read as format 1 demands."""


class ConfigError(TraingenError):
    """A pair file, an option or an argument cannot be used as given."""


class SystemFailed(TraingenError):
    """A system raised or stalled before its run was over."""
