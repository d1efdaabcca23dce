"""What is written down of a training run: values, their JSON lines, sinks and a reader."""

from traingen.records.codec import decode_line, encode_line, plain_json
from traingen.records.paths import new_run_id, recording_path
from traingen.records.reader import Recording, TornTail, iter_records, read_recording
from traingen.records.schema import (
    DIGEST_ALGORITHM,
    FORMAT,
    BatchFacts,
    EndRecord,
    EventRecord,
    OptimizerIdentity,
    Record,
    RunRecord,
    SchedulerIdentity,
    SchedulerState,
    UpdateRecord,
)
from traingen.records.sinks import JsonlSink, MemorySink, Sink, TeeSink

__all__ = [
    "DIGEST_ALGORITHM",
    "FORMAT",
    "BatchFacts",
    "EndRecord",
    "EventRecord",
    "JsonlSink",
    "MemorySink",
    "OptimizerIdentity",
    "Record",
    "Recording",
    "RunRecord",
    "SchedulerIdentity",
    "SchedulerState",
    "Sink",
    "TeeSink",
    "TornTail",
    "UpdateRecord",
    "decode_line",
    "encode_line",
    "iter_records",
    "new_run_id",
    "plain_json",
    "read_recording",
    "recording_path",
]
