"""Say which of the callbacks that must take part in a training Lightning has thrown out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import lightning.pytorch as pl
from lightning_utilities.core.rank_zero import rank_zero_warn

from traingen.cadence.kinds import EVICTED
from traingen.callbacks.lightning_run import command_line_of
from traingen.compare.findings import Finding


class Attendance(pl.Callback):
    """Warn at fit start about each of `required` that is not among the trainer's callbacks.

    A callback that `LightningModule.configure_callbacks` returns replaces those of its class and
    of its superclasses that the trainer was given
    (`lightning/pytorch/trainer/connectors/callback_connector.py`, `_attach_model_callbacks`);
    Lightning says so at log level INFO only. Nobody subclasses this class, so that it stays.

    Args:
        required: the very instances that must take part.
    """

    def __init__(self, required: Iterable[pl.Callback]) -> None:
        self._required = tuple(required)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Look before training; the other stages run without them as well."""
        if stage == "fit":
            present = trainer.callbacks  # type: ignore[attr-defined]
            for finding in check_attendance(self._required, present, owner=pl_module):
                rank_zero_warn(str(finding))


class Configurable(Protocol):
    """What a callback of ours says of itself."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The arguments it was made with."""


def notice_evicted(
    callback: Configurable, trainer: pl.Trainer, pl_module: pl.LightningModule
) -> None:
    """Warn about callbacks of ours that a LightningCLI was given and that take no part.

    For the `setup` of every callback of ours: one that evicts another is of its class, so that
    its `setup` runs. The first of them speaks for all.
    """
    present: Sequence[Any] = trainer.callbacks  # type: ignore[attr-defined]
    ours = [one for one in present if type(one).__module__.startswith("traingen.")]
    speaker = next((one for one in ours if hasattr(one, "settings")), callback)
    if speaker is callback:
        for finding in check_configured(command_line_of(trainer), present, owner=pl_module):
            rank_zero_warn(str(finding))


def check_configured(
    command_line: Mapping[str, Any], present: Sequence[Any], *, owner: pl.LightningModule
) -> Iterator[Finding]:
    """A finding for every callback of ours in the configuration that is not present as given."""
    trainer = command_line.get("trainer")
    for given in (trainer and trainer.get("callbacks")) or ():
        path = str(given.get("class_path", ""))
        arguments = dict((given.get("init_args") or {}).items())
        named = [one for one in present if type(one).__name__ == path.rpartition(".")[2]]
        if path.startswith("traingen.") and not any(_as_given(one, arguments) for one in named):
            yield EVICTED.found(
                f"the {path} of the configuration takes no part in this training: "
                f"{type(owner).__name__}.configure_callbacks returned another one, which replaced "
                "it"
            )


def _as_given(callback: Configurable, arguments: Mapping[str, Any]) -> bool:
    settings = callback.settings  # objects that it was given are not among them
    return all(settings[name] == value for name, value in arguments.items() if name in settings)


def check_attendance(
    required: Iterable[pl.Callback], present: Sequence[pl.Callback], *, owner: pl.LightningModule
) -> Iterator[Finding]:
    """A finding for every required instance that is not present; `owner` has evicted it."""
    for callback in required:
        if not any(other is callback for other in present):
            yield EVICTED.found(describe_absence(callback, present, owner=owner))


def describe_absence(
    callback: pl.Callback, present: Sequence[pl.Callback], *, owner: pl.LightningModule
) -> str:
    """Which callback is absent and, if one of its class sits there instead, by whose doing."""
    absent = f"the {type(callback).__name__} given to the trainer takes no part in this training"
    instead = next((other for other in present if isinstance(other, type(callback))), None)
    if instead is None:
        return f"{absent}: it was removed from trainer.callbacks"
    return (
        f"{absent}: {type(owner).__name__}.configure_callbacks returned "
        f"a {type(instead).__name__}, which replaced it"
    )
