"""What is written down of a training run: values, their JSON lines, sinks and a reader."""

from traingen.records.all_ranks import MergedRecording, merge_ranks, read_ranks
from traingen.records.attempts import MissingUpdates, SupersededUpdates
from traingen.records.codec import decode_line, encode_line, plain_json
from traingen.records.paths import new_run_id, recording_path, times_path
from traingen.records.ranks import RANKS_RTOL, LossSpread, RankDisagreement, UnequalRanks
from traingen.records.reader import Fragment, Recording, TornTail, iter_records, read_recording
from traingen.records.schema import (
    DIGEST_ALGORITHM,
    FORMAT,
    BatchFacts,
    ClosureFacts,
    EndRecord,
    EventRecord,
    OptimizerIdentity,
    Record,
    ResumeFacts,
    RunRecord,
    SchedulerIdentity,
    SchedulerState,
    ShardFacts,
    UpdateRecord,
)
from traingen.records.sinks import JsonlSink, MemorySink, Sink, TeeSink
from traingen.records.times import StepTime, TimesSink, iter_times

__all__ = [
    "DIGEST_ALGORITHM",
    "FORMAT",
    "RANKS_RTOL",
    "BatchFacts",
    "ClosureFacts",
    "EndRecord",
    "EventRecord",
    "Fragment",
    "JsonlSink",
    "LossSpread",
    "MemorySink",
    "MergedRecording",
    "MissingUpdates",
    "OptimizerIdentity",
    "RankDisagreement",
    "Record",
    "Recording",
    "ResumeFacts",
    "RunRecord",
    "SchedulerIdentity",
    "SchedulerState",
    "ShardFacts",
    "Sink",
    "StepTime",
    "SupersededUpdates",
    "TeeSink",
    "TimesSink",
    "TornTail",
    "UnequalRanks",
    "UpdateRecord",
    "decode_line",
    "encode_line",
    "iter_records",
    "iter_times",
    "merge_ranks",
    "new_run_id",
    "plain_json",
    "read_ranks",
    "read_recording",
    "recording_path",
    "times_path",
]
