"""Two trainings, one optimizer update at a time, side by side."""

from traingen.compare.gates import Gates, Tolerance
from traingen.lockstep.feed import Feed
from traingen.lockstep.loop_system import LoopSystem
from traingen.lockstep.name_map import NameMap
from traingen.lockstep.pair import load_pair, make_gates, make_name_map
from traingen.lockstep.result import LockstepResult
from traingen.lockstep.run import lockstep
from traingen.lockstep.system import System
from traingen.lockstep.taps import Tap
from traingen.lockstep.trainer_system import FitCall, TrainerSystem

__all__ = [
    "Feed",
    "FitCall",
    "Gates",
    "LockstepResult",
    "LoopSystem",
    "NameMap",
    "System",
    "Tap",
    "Tolerance",
    "TrainerSystem",
    "load_pair",
    "lockstep",
    "make_gates",
    "make_name_map",
]
