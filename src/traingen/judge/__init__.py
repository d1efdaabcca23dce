"""What does one recording show by itself?"""

from traingen.judge.kinds import KINDS
from traingen.judge.ranks import judge_ranks
from traingen.judge.recording import RecordingJudge, judge_recording

__all__ = ["KINDS", "RecordingJudge", "judge_ranks", "judge_recording"]
