"""Lightning callbacks: thin, and training with them ends in the same bits as without."""

from traingen.callbacks.step_recorder import StepRecorder

__all__ = ["StepRecorder"]
