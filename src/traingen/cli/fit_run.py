"""Run LightningCLI for any model and data, with the cadence guard and, if asked, a recorder."""

from __future__ import annotations

import sys
from argparse import ArgumentError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback

from traingen.callbacks.attendance import Attendance
from traingen.cli.fit_options import (
    add_options,
    check_config,
    configure_optimizers,
    explain_refusal,
    make_recorder,
)
from traingen.errors import ConfigError

LIBRARIES = {
    "jsonargparse", "lightning", "lightning_utilities", "torch", "traingen",
    *sys.stdlib_module_names,
}  # fmt: skip


def run_lightning(name: str, arguments: Sequence[str]) -> int:
    """Run Lightning's subcommand `name`; returns 0 or raises.

    Raises:
        TraingenError: the arguments cannot be used, a callback of ours refuses this training, or
            the schedule is not kept. What code of the user's own raises is raised as it is.
        KeyboardInterrupt: Ctrl-C, after Lightning has shut the trainer down.
    """
    try:
        with refusing(MisconfigurationException, where=name):
            TraingenCLI(name, arguments)
    except ArgumentError as error:
        raise ConfigError(f"{name}: {explain_refusal(str(error))}") from error
    except SystemExit as stop:
        if isinstance(stop.__context__, KeyboardInterrupt):  # Lightning exits with 1 on Ctrl-C
            raise KeyboardInterrupt from stop
        raise
    return 0


class TraingenCLI(LightningCLI):
    """LightningCLI with one subcommand, and with `cadence`, `record` and `lr_scheduler_config`.

    It parses, builds and runs when it is made, as LightningCLI does.
    """

    def __init__(self, name: str, arguments: Sequence[str]) -> None:
        self.name = name
        super().__init__(
            args=[name, *arguments],
            save_config_callback=SaveConfig,
            parser_kwargs={
                "prog": "traingen",
                "exit_on_error": False,
                name: {"exit_on_error": False},
            },
        )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """The one that was asked for: the parsers of the others would only cost time."""
        return {self.name: LightningCLI.subcommands()[self.name]}

    def setup_parser(self, *args: Any, **kwargs: Any) -> None:
        """Build the parser; its usage shows the command as it is typed."""
        super().setup_parser(*args, **kwargs)
        self._parser(self.name).prog = f"traingen {self.name}"

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add trainer, model and data; that a model is missing is ours to say."""
        parser.add_lightning_class_args(pl.Trainer, "trainer")
        for_any = {"subclass_mode": True, "required": False}
        parser.add_lightning_class_args(pl.LightningModule, "model", **for_any)
        parser.add_lightning_class_args(pl.LightningDataModule, "data", **for_any)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what LightningCLI does not have."""
        add_options(parser)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse `args`, which do not compete with `sys.argv`: they were taken from there."""
        self.config = parser.parse_args(args)
        check_config(self.config[self.name], where=self.name)

    def _set_seed(self) -> None:
        """Seed, and note whether anybody asked for that seed: Lightning's default is 0."""
        given = self.config[self.name].seed_everything
        self.seed_source = "seed_everything, by default" if given is True else "seed_everything"
        super()._set_seed()

    def instantiate_classes(self) -> None:
        """Build everything; a value that a library refuses is bad input."""
        with refusing(ValueError, ModuleNotFoundError, where=self.name):
            super().instantiate_classes()

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Build the trainer with our callbacks beside those of its configuration."""
        config = self.config_init[self.name]
        recorder = make_recorder(config.record, seed_source=self.seed_source)
        added = [] if recorder is None else [recorder]
        self.trainer_defaults["callbacks"] = [*added, Attendance([config.cadence, *added])]
        return super().instantiate_trainer(**kwargs)

    @property
    def configure_optimizers(self) -> Callable[..., Any]:  # type: ignore[override]
        """The function that Lightning binds to the model, with the options it needs.

        It does not hold this object: copies of the model (weight averaging makes one) copy it.
        """
        options = self.config[self.name].lr_scheduler_config
        return partial(configure_optimizers, options=dict(options))


class SaveConfig(SaveConfigCallback):
    """SaveConfigCallback that says what a user of the command can do if the file exists."""

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Save the configuration into the log folder.

        Raises:
            ConfigError: an earlier run has left its own there.
        """
        try:
            super().setup(trainer, pl_module, stage)
        except RuntimeError as error:
            path = Path(trainer.log_dir or "", self.config_filename)
            if self.already_saved or not path.is_file():
                raise
            raise ConfigError(
                f"{path} exists, and this run must save its own configuration there: move it "
                "away or give another --trainer.default_root_dir."
            ) from error


@contextmanager
def refusing(*errors: type[Exception], where: str) -> Iterator[None]:
    """Turn `errors` into bad input, unless code of the user's own took part: that is a crash."""
    try:
        yield
    except errors as error:
        if went_through_user_code(error):
            raise
        raise ConfigError(f"{where}: {error}") from error


def went_through_user_code(error: BaseException) -> bool:
    """Whether a frame between us and where `error` was raised belongs to no library we call.

    jsonargparse raises anew what a constructor raised, so that its cause counts too.
    """
    modules = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    if any(module.split(".")[0] not in LIBRARIES for module in modules):
        return True
    return error.__cause__ is not None and went_through_user_code(error.__cause__)
