"""Let a callback that nobody wrote into the script watch a training without ever harming it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_info

from traingen.errors import CadenceViolation
from traingen.observe.events import Listener
from traingen.observe.listening import listeners_here

STATE_HOOKS = ("state_dict", "load_state_dict")  # those that are not given the trainer


class Guest(pl.Callback):
    """Forward to one callback the hooks that it overrides, and stand down rather than do harm.

    The script knows nothing of a guest, so its training must not depend on one. Whatever the inner
    callback raises, in a hook or in what it hears of torch, becomes one warning: the inner callback
    is closed by its own `on_exception` and `teardown` and nothing is forwarded any more. Only
    `CadenceViolation` passes, because stopping is what a guard was asked for.

    A guest also stands down where the trainer has a callback of the same class from elsewhere (the
    script, YAML, a flag, the model), or an earlier guest with one: nothing is done twice.

    Args:
        inner: the callback; it is not in `trainer.callbacks` itself.
    """

    def __init__(self, inner: pl.Callback) -> None:
        self.inner = inner
        self._error: Exception | None = None  # what the inner callback raised first
        self._away = False  # nothing is forwarded
        for name in overridden_hooks(inner):
            if name != "setup":
                # on the instance: Lightning sees as overridden what the inner callback overrides
                setattr(self, name, partial(self._forward, name))

    @property
    def state_key(self) -> str:
        """The inner callback's own, marked: the same class may be there twice until `setup`."""
        return f"Guest({self.inner.state_key})"

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Decide for this run of the trainer whether the inner callback takes part."""
        if self._error is not None:
            return
        self._away = is_doubled(self, trainer.callbacks)  # type: ignore[attr-defined]
        if self._away:
            rank_zero_info(
                f"traingen: {self._name} from the environment stands down: the Trainer has its own."
            )
        else:
            self._forward("setup", trainer, pl_module, stage)

    @property
    def _name(self) -> str:
        return type(self.inner).__name__

    def _forward(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call the hook `name` of the inner callback, unless the guest has stood down."""
        result = None
        if self._error is None and not self._away:
            result = self._call(name, *args, **kwargs)
        if self._error is not None and not self._away and name not in STATE_HOOKS:
            self._leave(*args[:2])
        return {} if result is None and name == "state_dict" else result

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            with shielded_listeners(self._fail):
                return getattr(self.inner, name)(*args, **kwargs)
        except CadenceViolation:
            raise
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Say once why the guest stands down.

        It leaves at the next hook only: this may be inside a hook of torch, which cannot be taken
        out while torch goes through its hooks.
        """
        if self._error is None:
            self._error = error
            reason = next(iter(str(error).splitlines()), "")  # torch's own go on for pages
            warn_host(
                f"traingen: {self._name} from the environment stands down and the training goes "
                f"on without it. {type(error).__name__}: {reason}"
            )

    def _leave(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Have the inner callback close its files and take its hooks out."""
        self._away = True
        assert self._error is not None
        for close in (
            partial(self.inner.on_exception, trainer, pl_module, self._error),
            partial(self.inner.teardown, trainer, pl_module, "fit"),
        ):
            try:
                close()
            except Exception as error:  # it has failed before: the host has been warned
                logging.getLogger(__name__).warning(f"traingen: {self._name}: {error!r}")


def overridden_hooks(callback: pl.Callback) -> list[str]:
    """The hooks of Lightning that the class of `callback` defines itself."""
    hooks = (name for name, hook in vars(pl.Callback).items() if callable(hook) and name[0] != "_")
    cls = type(callback)
    return [name for name in hooks if getattr(cls, name) is not getattr(pl.Callback, name)]


def is_doubled(guest: Guest, callbacks: Sequence[Any]) -> bool:
    """Whether another of `callbacks` does the work of `guest`; of two guests the first stays."""
    cls = type(guest.inner)
    before = takewhile(lambda one: one is not guest, callbacks)
    return any(isinstance(one, cls) for one in callbacks) or any(
        isinstance(one, Guest) and type(one.inner) is cls for one in before
    )


def unwrap(callback: pl.Callback) -> pl.Callback:
    """The callback that does the work: the inner one of a guest."""
    return callback.inner if isinstance(callback, Guest) else callback


@contextmanager
def shielded_listeners(failed: Callable[[Exception], None]) -> Iterator[None]:
    """Hand what the listeners that start within the block will ever raise to `failed`.

    They are called by torch and not by Lightning: no hook of the guest is around them.
    """
    known = listeners_here()
    try:
        yield
    finally:
        for listener in listeners_here():
            if not any(listener is one for one in known):
                shield(listener, failed)


def shield(listener: Listener, failed: Callable[[Exception], None]) -> None:
    """Replace what `listener` hears by the same that raises nothing but CadenceViolation."""
    for name in vars(Listener):
        if name[0] != "_" and getattr(type(listener), name) is not getattr(Listener, name):
            setattr(listener, name, _shielded(getattr(listener, name), failed))


def _shielded(hear: Callable[..., None], failed: Callable[[Exception], None]) -> Any:
    broken = False

    def wrapper(*args: Any) -> None:
        nonlocal broken
        if broken:
            return
        try:
            hear(*args)
        except CadenceViolation:
            raise
        except Exception as error:
            broken = True
            failed(error)

    return wrapper


def warn_host(message: str) -> None:
    """Warn; where warnings are errors it is logged, because the host's training must go on."""
    try:
        warnings.warn(message, stacklevel=2)
    except Warning:
        logging.getLogger(__name__).warning(message)
