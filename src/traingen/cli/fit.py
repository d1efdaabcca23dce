"""Hand `traingen fit`, `validate`, `test` and `predict` over to Lightning's command line."""

from collections.abc import Sequence


def run_arguments(name: str, arguments: Sequence[str]) -> int:
    """Parse `arguments` as LightningCLI does and run its subcommand `name`; the exit code."""
    from traingen.cli.fit_run import run_lightning  # torch and Lightning load here

    return run_lightning(name, arguments)
