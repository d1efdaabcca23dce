"""Evidence, update by update, that a re-implemented training loop reproduces its original."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traingen.callbacks.cadence_guard import CadenceGuard
    from traingen.callbacks.step_recorder import StepRecorder
    from traingen.reading.columns import load

__version__ = "0.1.0.dev0"

__all__ = ["CadenceGuard", "StepRecorder", "__version__", "load"]

# Public names that are loaded on first use, and the module each is loaded from.
_LAZY = {
    "CadenceGuard": "traingen.callbacks.cadence_guard",
    "StepRecorder": "traingen.callbacks.step_recorder",
    "load": "traingen.reading.columns",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562), so that `import traingen` stays light."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
