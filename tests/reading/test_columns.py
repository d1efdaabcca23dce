"""A recording as columns: every value where it belongs, and what is missing as such."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traingen
from tests.reading.recordings import (
    change,
    make_training,
    make_updates,
    resumed_at,
    seeing_run,
    write_ranks,
    write_recording,
)
from tests.records.samples import make_update
from traingen.errors import ConfigError, RecordingError
from traingen.reading import columns
from traingen.reading.columns import flatten_update, load
from traingen.records import read_recording, recording_path
from traingen.records.times import StepTime, TimesSink

NAN, INF = math.nan, math.inf


@pytest.fixture
def columns_of(tmp_path):
    """The columns of a recording that holds the given records."""

    def write_and_load(records):
        return load(write_recording(tmp_path / f"run{len(list(tmp_path.iterdir()))}", records))

    return write_and_load


def test_every_value_of_an_update_has_its_column(columns_of):
    found = columns_of(make_training(3))
    for row, record in enumerate(make_training(3)[1:-1]):
        for name, value in flatten_update(record).items():
            assert found[name][row] == value, name
    assert {len(column) for column in found.values()} == {3}


def test_names_say_where_a_value_stands():
    names = set(flatten_update(make_update(2, lr=[0.1, 0.2], user={"probe": {"x": 1.0}})))
    assert {
        "lr_0", "lr_1", "loss_terms.sparsity", "scheduler.0.ticks", "rng_forward.torch",
        "hyper_parameters.0.betas_1", "batch.digest", "batch.ids", "layer_norms.weight",
        "micro_losses_0", "user.probe.x",
    } <= names  # fmt: skip
    assert not {"lr", "scheduler", "batch", "closure", "unknown"} & names


def test_kinds_of_columns(columns_of):
    found = columns_of(make_training(3))
    kinds = {name: found[name].dtype for name in ("update", "loss", "clipped", "rng.torch")}
    assert kinds == {"update": np.int64, "loss": np.float64, "clipped": bool, "rng.torch": object}


def test_a_whole_number_that_a_row_lacks_makes_a_column_of_floats(columns_of):
    found = columns_of(change(make_training(3), 2, global_step=None, clipped=None))
    assert found["global_step"].tolist()[::2] == [1.0, 3.0]
    assert np.isnan(found["global_step"][1])
    assert np.isnan(found["clipped"][1])
    assert found["global_step"].dtype == found["clipped"].dtype == np.float64


def test_text_that_a_row_lacks_is_none(columns_of):
    found = columns_of(change(make_training(3), 1, rng=None, batch=None, parameters=None))
    assert found["rng.torch"].tolist() == [None, "bb", "bb"]
    assert found["batch.ids"].tolist() == [None, [3, "sämple-4"], [3, "sämple-4"]]


def test_what_no_row_has_is_no_column(columns_of):
    found = columns_of(make_training(2, loss=None, sampler=None))
    assert "loss" not in found
    assert "sampler" not in found


def test_numbers_that_are_not_finite_are_numbers(columns_of):
    ema = {"class_path": "Ema", "distance": INF}
    found = columns_of(change(make_training(3), 2, loss=NAN, grad_norm=-INF, ema=ema))
    assert np.isnan(found["loss"][1])
    assert found["grad_norm"][1] == -INF
    assert found["ema.distance"].tolist() == [0.5, INF, 0.5]


def test_a_whole_number_that_no_float_holds_stays_what_it_is(columns_of):
    seed = 2**64 - 1
    found = columns_of(change(make_training(2), 2, data_sampler={"seed": seed}))
    assert found["data_sampler.seed"].tolist() == [None, seed]


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1])
def test_whole_numbers_that_no_column_of_numbers_holds_are_objects(columns_of, seed):
    for each, kind in ((seed, object), (seed // 2, np.int64)):
        column = columns_of(make_training(2, data_sampler={"seed": each}))["data_sampler.seed"]
        assert (column.tolist(), column.dtype) == ([each, each], kind)


def test_each_update_stands_once_with_its_attempt(columns_of):
    old = change([seeing_run(), *make_updates(1, 4)], 3, loss=9.0)
    found = columns_of([*old, resumed_at(2), *make_updates(3, 5)])
    assert found["update"].tolist() == [1, 2, 3, 4, 5]
    assert found["attempt"].tolist() == [1, 1, 2, 2, 2]
    assert 9.0 not in found["loss"]


def test_optimizers_share_the_columns(columns_of):
    both = [seeing_run(), *make_updates(1, 2), *make_updates(1, 1, optimizer=1, lr=[1.0, 2.0])]
    found = columns_of(both)
    assert found["optimizer"].tolist() == [0, 0, 1]
    assert np.isnan(found["lr_1"][:2]).all()
    assert found["lr_1"][2] == 2.0


def write_times(path, *times):
    """The attempt, the update and its seconds, of each."""
    with TimesSink(path) as sink:
        for attempt, update, seconds in times:
            sink.write(
                StepTime(
                    attempt=attempt, update=update, optimizer=0,
                    step_seconds=seconds, wait_seconds=0.0,
                )
            )  # fmt: skip


def test_times_stand_beside_their_updates(tmp_path):
    path = write_recording(tmp_path / "run", make_training(3))
    assert "step_seconds" not in load(path)
    write_times(path, (1, 1, 0.5), (1, 3, 0.7))
    found = load(recording_path(path))
    assert found["step_seconds"].tolist()[::2] == [0.5, 0.7]
    assert np.isnan(found["wait_seconds"][1])


def test_times_are_those_of_the_attempt_whose_update_stands(tmp_path):
    records = [
        seeing_run(), *make_updates(1, 3), resumed_at(1), *make_updates(2, 2),
        resumed_at(3, attempt=3, before=1), *make_updates(4, 4),
    ]  # fmt: skip
    path = write_recording(tmp_path / "run", records)
    write_times(path, (1, 1, 0.1), (1, 2, 0.2), (1, 3, 0.3), (2, 2, 9.0), (3, 4, 0.4))
    found = load(path)
    assert found["attempt"].tolist() == [1, 1, 1, 3]
    assert found["step_seconds"].tolist() == [0.1, 0.2, 0.3, 0.4]


def test_ranks_are_merged_or_one_is_read_alone(tmp_path):
    path = write_ranks(
        tmp_path / "run", make_training(3, loss=1.0), make_training(3, loss=2.0, epoch=7)
    )
    merged = load(path)
    assert (merged["loss"].tolist(), merged["epoch"].tolist()) == ([1.5] * 3, [0] * 3)
    assert load(path, rank=1)["loss"].tolist() == [2.0] * 3
    assert load(path, rank=1, frame="pandas")["epoch"].tolist() == [7] * 3
    recording_path(path, rank=1).unlink()
    with pytest.raises(RecordingError, match="no recording of rank 1"):
        load(path)
    assert load(path, rank=0)["loss"].tolist() == [1.0] * 3


@given(
    losses=st.lists(st.floats() | st.none(), min_size=1, max_size=12),
    chunk=st.integers(1, 5),
)
def test_chunks_make_no_difference(tmp_path_factory, losses, chunk):
    records = [seeing_run()]
    for number, loss in enumerate(losses, start=1):
        rng = None if number % 3 else {"torch": "x"}
        records.append(make_update(number, loss=loss, rng=rng, clipped=loss is None or None))
    path = write_recording(tmp_path_factory.mktemp("chunk") / "run", records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "CHUNK", chunk)
        in_chunks = load(path)
    at_once = load(path)
    assert in_chunks.keys() == at_once.keys()
    for name, column in at_once.items():
        assert in_chunks[name].dtype == column.dtype, name
        assert str(in_chunks[name].tolist()) == str(column.tolist())


def test_it_is_a_public_name():
    assert traingen.load is load


def test_pandas_on_request(tmp_path):
    path = write_recording(tmp_path / "run", change(make_training(3), 2, loss=None))
    frame = load(path, frame="pandas")
    assert list(frame.columns) == list(load(path))
    assert frame["loss"].isna().tolist() == [False, True, False]
    assert frame["batch.ids"][0] == [3, "sämple-4"]


def test_polars_on_request(tmp_path):
    path = write_recording(tmp_path / "run", make_training(2))
    frame, columns = load(path, frame="polars"), load(path)
    assert type(frame).__module__.startswith("polars.")
    assert frame.columns == list(columns)
    assert frame["rng.torch"].to_list() == ["bb", "bb"]
    assert frame["loss"].to_list() == columns["loss"].tolist()
    assert str(frame["loss"].dtype) == "Float64"


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_not_there_is_named_with_the_way_out(tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    path = write_recording(tmp_path / "run", make_training(1))
    with pytest.raises(ConfigError, match=f"needs {library}.*pip install {library}"):
        load(path, frame=library)


def test_another_kind_of_frame_is_refused(tmp_path):
    path = write_recording(tmp_path / "run", make_training(1))
    with pytest.raises(ConfigError, match="'pandas' or 'polars', got 'excel'"):
        load(path, frame="excel")


def test_no_recording_is_an_error(tmp_path):
    with pytest.raises(RecordingError, match="no such recording"):
        load(tmp_path / "none")


def test_columns_hold_what_the_reader_gives(tmp_path):
    path = write_recording(tmp_path / "run", make_training(4))
    assert load(path)["loss"].tolist() == [r.loss for r in read_recording(path).updates]


def test_a_recording_without_updates_has_empty_columns(tmp_path):
    empty = load(write_recording(tmp_path / "run", [seeing_run()]))
    full = load(write_recording(tmp_path / "full", make_training(3)))
    assert {"update", "optimizer", "loss", "grad_norm", "clipped", "attempt"} <= empty.keys()
    assert {len(column) for column in empty.values()} == {0}
    assert (empty["update"].dtype, empty["loss"].dtype) == (np.int64, np.float64)
    assert empty["parameters"].dtype == object
    assert "lr_0" not in empty
    assert len(full["loss"]) == 3
