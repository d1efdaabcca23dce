"""Lightning callbacks: thin, and training with them ends in the same bits as without."""

from traingen.callbacks.cadence_guard import CadenceGuard
from traingen.callbacks.step_recorder import StepRecorder

__all__ = ["CadenceGuard", "StepRecorder"]
