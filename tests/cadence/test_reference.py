"""The rates of an original run, from whatever it left behind, and what a run is held to by them."""

import csv
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger

from tests.callbacks.small import BATCHES, Small, fit
from tests.records.samples import make_end, make_event, make_resumed, make_run, make_update
from traingen import StepRecorder
from traingen.cadence.reference import (
    REFERENCE_RTOL,
    SIX_DIGITS_RTOL,
    RateTable,
    compare_rates,
    load_rate_table,
)
from traingen.errors import ConfigError
from traingen.records import Record, encode_line

Rates = Sequence[Sequence[float]]
FALLING = ((0.1,), (0.05,), (0.025,))

rate = st.floats(1e-6, 1e3)  # below, what is wrong by a millionth is within the absolute tolerance
tables = st.integers(1, 3).flatmap(
    lambda groups: st.lists(
        st.tuples(*[rate] * groups),
        min_size=1,
        max_size=8,
    )
)


def make_table(rates: Rates, **changes: Any) -> RateTable:
    fields = {"path": Path("runs/original"), "kind": "recording", "rates": tuple(map(tuple, rates))}
    return RateTable(**(fields | changes))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def write_records(path: Path, *records: Record) -> Path:
    path.write_bytes(b"".join(map(encode_line, records)))
    return path


def write_recording(path: Path, rates: Rates, *, optimizer: int = 0) -> Path:
    recorded = updates(rates, optimizer=optimizer)
    return write_records(path, make_run(), *recorded, make_end(updates=len(recorded)))


def updates(rates: Rates, *, first: int = 1, optimizer: int = 0) -> list[Record]:
    return [
        make_update(number, lr=list(groups), optimizer=optimizer)
        for number, groups in enumerate(rates, start=first)
    ]


def write_json(path: Path, entries: Iterable[Any]) -> Path:
    return write(path, "".join(json.dumps(entry) + "\n" for entry in entries))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def refusal(path: Path, **options: Any) -> str:
    """What is said of a reference that cannot be used: always one line with its place."""
    with pytest.raises(ConfigError) as caught:
        load_rate_table(path, **options)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message.replace(str(path), path.name)


# ---- recordings ---------------------------------------------------------------------------------


@given(tables)
def test_a_recording_gives_back_the_rates_it_was_made_from(tmp_path_factory, rates):
    folder = tmp_path_factory.mktemp("run")
    write_recording(folder / "updates.rank0.jsonl", rates)
    table = load_rate_table(folder)
    assert (table.kind, table.path, list(table.rates)) == ("recording", folder, rates)
    assert load_rate_table(folder / "updates.rank0.jsonl").rates == table.rates


def test_a_recording_is_known_by_its_lines_whatever_it_is_called(tmp_path):
    path = write_recording(tmp_path / "rates.txt", FALLING)
    assert load_rate_table(path).kind == "recording"


def test_each_optimizer_of_a_recording_has_its_own_rates(tmp_path):
    path = write_records(
        tmp_path / "gan.jsonl",
        make_run(),
        *updates(FALLING),
        *updates([(7.0,), (8.0,)], optimizer=1),
        make_event(update=5),
    )
    assert load_rate_table(path).rates == FALLING
    assert load_rate_table(path, optimizer=1).rates == ((7.0,), (8.0,))
    assert "optimizer 2, found only of 0, 1" in refusal(path, optimizer=2)


def test_a_later_attempt_takes_the_place_of_what_earlier_ones_did_from_there_on(tmp_path):
    path = write_records(
        tmp_path / "resumed.jsonl",
        make_run(),
        *updates([(1.0,), (2.0,), (3.0,), (4.0,), (5.0,)]),
        make_run(attempt=2, resumed=make_resumed(2)),
        *updates([(30.0,), (40.0,)], first=3),
    )
    assert load_rate_table(path).rates == ((1.0,), (2.0,), (30.0,), (40.0,))
    assert load_rate_table(path, limit=3).rates == ((1.0,), (2.0,), (30.0,))


def test_a_resume_after_lost_updates_leaves_a_gap(tmp_path):
    path = write_records(
        tmp_path / "resumed.jsonl",
        make_run(),
        *updates(FALLING),
        make_run(attempt=2, resumed=make_resumed(5)),
        *updates(FALLING, first=6),
    )
    assert "updates 1 to 6 must all be there, 4 is missing" in refusal(path)
    assert load_rate_table(path, limit=3).rates == FALLING


def test_a_recording_that_begins_late_is_refused(tmp_path):
    path = write_records(
        tmp_path / "late.jsonl",
        make_run(attempt=2, resumed=make_resumed(3)),
        *updates(FALLING, first=4),
    )
    assert "update 4: updates must begin at 1 (or 0), the first is 4" in refusal(path)
    assert "the first is 4" in refusal(path, limit=2)


def test_a_damaged_recording_is_refused_at_its_line(tmp_path):
    path = write_recording(tmp_path / "run.jsonl", FALLING)
    path.write_bytes(path.read_bytes().replace(b"0.05", b"0.06"))
    assert refusal(path).startswith("run.jsonl:3: 'crc' must be")


def test_a_torn_tail_is_left_out(tmp_path):
    path = write_recording(tmp_path / "run.jsonl", FALLING)
    with path.open("ab") as file:
        file.write(b'{"kind":"update","update":4,"lr":[0.0')
    assert load_rate_table(path).rates == FALLING


# ---- JSON lines ---------------------------------------------------------------------------------


@given(tables, st.sampled_from(["lr", "learning_rate"]), st.sampled_from([None, 0, 1]))
def test_json_lines_give_back_the_rates_they_were_made_from(tmp_path_factory, rates, name, start):
    entries = [{"loss": 1.0, name: list(groups)} for groups in rates]
    if start is not None:
        entries = [entry | {"step": at} for at, entry in enumerate(entries, start=start)]
    path = write_json(tmp_path_factory.mktemp("log") / "log.jsonl", entries)
    table = load_rate_table(path)
    assert (table.kind, list(table.rates)) == ("jsonl", rates)


def test_lines_without_a_rate_are_skipped(tmp_path):
    entries = [{"config": {}}, {"lr": 0.1, "step": 1}, {"eval_loss": 2, "step": 1, "lr": None}]
    path = write(tmp_path / "a.log", "".join(f"\n{json.dumps(entry)}\r\n" for entry in entries))
    assert load_rate_table(path).rates == ((0.1,),)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[0.1]", "expected one JSON object in a line, found [0.1]"),
        ('{"lr": 0.1', "expected one JSON object in a line"),
        ("[" * 100_000, "expected one JSON object in a line"),
        ('{"lr": "0.1"}', "'lr' must be a number, found '0.1'"),
        ('{"lr": true}', "'lr' must be a number, found True"),
        ('{"lr": [0.1, null]}', "'lr' must be a number, found None"),
        ('{"lr": []}', "'lr' must hold a rate per parameter group, found none"),
        ('{"lr": NaN}', "'lr' must be a finite number, found nan"),
        ('{"lr": -Infinity}', "'lr' must be a finite number, found -inf"),
        ('{"lr": 1e999}', "'lr' must be a finite number, found inf"),
        (f'{{"lr": 1{"0" * 400}}}', "'lr' must be a finite number, found 1000"),
        (f'{{"lr": 1{"0" * 5000}}}', "expected one JSON object in a line"),
        ('{"lr": 0.1, "learning_rate": 0.1}', "one optimizer, found 'lr', 'learning_rate'"),
        (
            '{"lr": 0.1, "step": 1}',
            "expected no number of the update as before, found the update's",
        ),
        ('{"lr": [0.1, 0.1]}', "expected 1 parameter group as before, found 2"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_at_its_place(tmp_path, line, said):
    path = write(tmp_path / "log.jsonl", f'{{"lr": 0.1}}\n\n{line}\n')
    assert refusal(path).startswith("log.jsonl:3: ")
    assert said in refusal(path)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([2, 3], "log.jsonl:1: updates must begin at 1 (or 0), the first is 2"),
        ([-1, 0], "log.jsonl:1: updates must begin at 1 (or 0), the first is -1"),
        ([1, 2, 4], "log.jsonl:3: updates 1 to 4 must all be there, 3 is missing"),
        ([0, 1, 50], "log.jsonl:3: updates 0 to 50 must all be there, 2 is missing"),
        ([1, 2, 1], "log.jsonl:3: updates must ascend, 1 comes too late"),
        ([1, 2, 2], "log.jsonl:3: updates must ascend, 2 comes again with other rates"),
        ([1, 1.5], "log.jsonl:2: 'step' must be an integer, found 1.5"),
        ([1, True], "log.jsonl:2: 'step' must be an integer, found True"),
        ([1, "2"], "log.jsonl:2: 'step' must be an integer, found '2'"),
        ([1, None], "log.jsonl:2: expected the update's number in 'step' as before, found no"),
    ],
)
def test_every_update_must_be_there_once_and_in_order(tmp_path, steps, said):
    entries = [{"lr": 0.5**at, "step": step} for at, step in enumerate(steps)]
    assert said in refusal(write_json(tmp_path / "log.jsonl", entries))


def test_a_number_may_come_again_with_the_same_rates(tmp_path):
    entries = [{"lr": 0.1, "step": 0}, {"lr": 0.1, "step": 0}, {"lr": 0.05, "step": 1}]
    assert load_rate_table(write_json(tmp_path / "a.jsonl", entries)).rates == FALLING[:2]


def test_what_comes_after_the_limit_is_not_read(tmp_path):
    path = write(tmp_path / "log.jsonl", '{"lr": 0.1}\n{"lr": 0.1}\n{"lr": 0.05}\n{"lr": NaN}\n')
    assert load_rate_table(path, limit=2).rates == ((0.1,), (0.1,))
    assert "log.jsonl:4: " in refusal(path, limit=4)


def test_a_gap_beyond_the_limit_does_no_harm_and_one_across_it_does(tmp_path):
    entries = [{"lr": 0.1, "update": at} for at in (1, 2, 3, 9)]
    path = write_json(tmp_path / "log.jsonl", entries)
    assert len(load_rate_table(path, limit=3).rates) == 3
    assert "4 is missing" in refusal(path, limit=4)


def test_the_updates_own_number_goes_before_other_counters(tmp_path):
    entries = [{"lr": 0.1, "global_step": 7 * at, "update": at} for at in (1, 2)]
    assert len(load_rate_table(write_json(tmp_path / "log.jsonl", entries)).rates) == 2


# ---- CSV ----------------------------------------------------------------------------------------


@given(tables, st.booleans(), st.integers(0, 1))
def test_a_csv_gives_back_the_rates_it_was_made_from(tmp_path_factory, rates, sparse, start):
    header = ["epoch", *(f"lr-Adam/pg{n}" for n in range(1, len(rates[0]) + 1)), "step"]
    rows: list[list[object]] = []
    for step, groups in enumerate(rates, start=start):
        rows.append(["", *groups, step])
        rows += [[0, *[""] * len(groups), step]] * sparse
    path = write_csv(tmp_path_factory.mktemp("csv") / "metrics.csv", header, rows)
    table = load_rate_table(path)
    assert (table.kind, list(table.rates)) == ("csv", rates)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("lr\n0.1\n0.05\n0.025\n", FALLING),
        ("\ufeff step, learning_rate\r\n1, 0.1\r\n2, 0.05\r\n3, 0.025\r\n", FALLING),
        ("step,lr\n1.0,1e-1\n2.0,5e-2\n\n,\n3.0,0.025", FALLING),
        ("lr-SGD-1/pg2,lr-SGD-1/pg1\n1,2\n", ((2.0, 1.0),)),
        ("lr-SGD/backbone,lr-SGD/backbone-momentum\n1,0.9\n", ((1.0,),)),
        ("lr-Adam-weight_decay,lr-Adam,loss\n0.1,1\n", ((1.0,),)),
        ('lr,"a, b"\n0.1,"x, y"\n', ((0.1,),)),
        ("lr\n-1e-9\n0\n", ((-1e-9,), (0.0,))),
    ],
)
def test_csv_as_people_write_it_is_read(tmp_path, text, rates):
    assert load_rate_table(write(tmp_path / "rates.csv", text)).rates == rates


def test_eleven_groups_keep_the_optimizers_order_although_csv_loggers_sort_columns(tmp_path):
    names = sorted(f"lr-Adam/pg{n}" for n in range(1, 12))
    values = [name.rpartition("pg")[2] for name in names]
    path = write_csv(tmp_path / "metrics.csv", names, [values])
    assert load_rate_table(path).rates == (tuple(float(n) for n in range(1, 12)),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "r.csv: expected learning rates, found an empty file"),
        ("\n \n", "r.csv: expected learning rates, found an empty file"),
        (",,\n1,2,3\n", "found '1', '2', '3': rename"),
        ('""\n', "'lr-<optimizer>', found none: rename"),
        ("step,lr\n", "r.csv: expected rates under 'lr', found none"),
        ("step,lr\n1,\n2,\n", "r.csv: expected rates under 'lr', found none"),
        ("step,rate,loss\n1,2,3\n", "found 'step', 'rate', 'loss': rename"),
        (",".join("abcdefghijk"), "'g', 'h' and 3 more: rename"),
        ("step;lr\n1;0.1\n", "found 'step;lr': rename"),
        ("lr,lr\n1,2\n", "expected one column 'lr', found several"),
        ("lr,learning_rate\n1,2\n", "one optimizer, found 'lr', 'learning_rate'"),
        ("lr,lr-Adam\n1,2\n", "one optimizer, found 'lr', 'lr-Adam'"),
        ("lr-Adam,lr-Adam-1\n1,2\n", "one optimizer, found 'lr-Adam', 'lr-Adam-1'"),
        (
            "lr-A/decay,lr-A/no_decay\n1,2\n",
            "order of the parameter groups 'lr-A/decay', 'lr-A/no_",
        ),
        ("lr-A,lr-A/pg1\n1,2\n", "order of the parameter groups"),
        ("lr-A/pg1,lr-A/pg3\n1,2\n", "order of the parameter groups"),
        (
            "lr-A/pg1,lr-A/pg2\n1,2\n1,\n",
            "r.csv:3: 'lr-A/pg2' must be a number, found an empty cell",
        ),
        ("lr\n0.1\nabc\n", "r.csv:3: 'lr' must be a number, found 'abc'"),
        ("lr\n1_0\n", "r.csv:2: 'lr' must be a number, found '1_0'"),
        ("lr\nnan\n", "r.csv:2: 'lr' must be a finite number, found nan"),
        ("lr\ninf\n", "r.csv:2: 'lr' must be a finite number, found inf"),
        ("lr\n" + "x" * 99, "found '" + "x" * 38 + "…."),
        ("step,lr\n1,0,001\n", "r.csv:2: expected 2 cells as in the header, found 3"),
        ("step,lr\n,0.1\n", "r.csv:2: 'step' must be an integer, found an empty cell"),
        ("lr,global_step\n1,0\n1,3\n", "r.csv:3: updates 0 to 3 must all be there, 1 is missing"),
        ('lr\n"0.1\n', "cannot be read as CSV: unexpected end of data"),
        ("lr\n" + "1" * 200_000, "cannot be read as CSV: field larger than field limit"),
    ],
)
def test_csv_that_cannot_be_used_is_refused(tmp_path, text, said):
    assert said in refusal(write(tmp_path / "r.csv", text))


# ---- files that are none of these ---------------------------------------------------------------


def test_what_is_no_file_is_refused(tmp_path):
    assert "no such file: name a recording" in refusal(tmp_path / "nothing.csv")
    assert "in this folder, found no updates.rank0.jsonl: name" in refusal(tmp_path)


@pytest.mark.parametrize(
    "junk",
    [b"\x80\x02}q\x00.", b"PK\x03\x04\x00\x00", b"\x1f\x8b\x08\x00", "lr\n".encode("utf-16")],
)
@pytest.mark.parametrize("name", ["last.ckpt", "rates.csv", "log.jsonl"])
def test_binary_junk_is_refused(tmp_path, junk, name):
    (tmp_path / name).write_bytes(junk)
    assert "expected rates as" in refusal(tmp_path / name)


@given(st.binary(max_size=60))
def test_no_bytes_end_in_anything_but_a_table_or_a_refusal(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("junk") / "rates"
    path.write_bytes(junk)
    try:
        assert load_rate_table(path).covers(1)
    except ConfigError:
        refusal(path)


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "rates.csv", "lr\n0.1\n")

    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", deny)
    assert "the reference cannot be read: Permission denied" in refusal(path)


def test_a_limit_below_one_is_refused(tmp_path):
    assert "must be 1 or more, got 0" in refusal(tmp_path / "rates.csv", limit=0)


# ---- comparing ----------------------------------------------------------------------------------


@given(tables)
def test_rates_compared_with_themselves_pass(rates):
    table = make_table(rates)
    assert [compare_rates(table, n, groups) for n, groups in enumerate(rates, start=1)] == [
        None
    ] * len(rates)


@given(tables, st.data())
def test_one_changed_rate_is_found_at_its_update_and_group(rates, data):
    update = data.draw(st.integers(1, len(rates)))
    group = data.draw(st.integers(0, len(rates[0]) - 1))
    factor = data.draw(st.sampled_from([0.0, 0.5, 1 - 2e-6, 1 + 2e-6, 10.0, -1.0, math.nan]))
    run = [list(groups) for groups in rates]
    run[update - 1][group] *= factor
    found = {n: compare_rates(make_table(rates), n, run[n - 1]) for n in range(1, len(rates) + 1)}
    said = found.pop(update)
    assert said is not None
    assert repr(run[update - 1][group]) in said
    assert repr(rates[update - 1][group]) in said
    assert set(found.values()) <= {None}


@given(
    st.lists(rate, min_size=1, max_size=3),
    st.lists(rate, min_size=1, max_size=3),
    st.lists(st.floats(0, 2), min_size=2, max_size=2),
    st.lists(st.floats(0, 2), min_size=2, max_size=2),
)
def test_a_looser_tolerance_never_turns_a_pass_into_a_fail(reference, run, rtols, atols):
    table = make_table([reference])
    tight = compare_rates(table, 1, run, rtol=min(rtols), atol=min(atols))
    loose = compare_rates(table, 1, run, rtol=max(rtols), atol=max(atols))
    assert tight is not None or loose is None


@pytest.mark.parametrize("update", [0, -1, 4])
def test_what_the_table_does_not_cover_is_never_a_pass(update):
    table = make_table(FALLING)
    assert not table.covers(update)
    with pytest.raises(LookupError, match="ends at update 3"):
        compare_rates(table, update, [0.1])


def test_the_table_covers_its_updates():
    assert [make_table(FALLING).covers(n) for n in (1, 2, 3)] == [True] * 3


@pytest.mark.parametrize(
    ("reference", "run", "said"),
    [
        ((0.1,), [0.1, 0.1], None),
        ((0.1,), [0.2, 0.2], "rate 0.2 where the reference has 0.1"),
        ((0.1,), [0.1, 0.2], "2 parameter groups where the reference has 1"),
        ((0.1, 0.1), [0.1], None),
        ((0.1, 0.2), [0.1], "1 parameter group where the reference has 2"),
        ((0.1, 0.1, 0.3), [0.1, 0.1], "2 parameter groups where the reference has 3"),
        ((0.1,), [], "0 parameter groups where the reference has 1"),
        ((0.1, 0.2), [0.1, 0.4], "lr[1] is 0.4 where the reference has 0.2"),
        ((1.0, 2.0, 3.0), [1.0, 3.0, 4.0], "lr[1] is 3.0 where the reference has 2.0, and 1 more"),
        ((0.0,), [1e-13], None),
        ((0.0,), [1e-11], "rate 1e-11 where the reference has 0.0"),
        ((0.1,), [math.nan], "rate nan where the reference has 0.1"),
        ((0.1,), [math.inf], "rate inf where the reference has 0.1"),
    ],
)
def test_what_differs_is_said_in_words(reference, run, said):
    found = compare_rates(make_table([reference]), 1, run)
    assert found == said or (found is not None and said is not None and found.startswith(said))


@given(tables)
def test_rates_kept_in_float32_are_the_same_rates(rates):
    table = make_table(torch.tensor(rates, dtype=torch.float32).tolist())
    assert all(compare_rates(table, n, groups) is None for n, groups in enumerate(rates, start=1))


@given(tables)
def test_rates_kept_to_six_digits_are_the_same_rates(tmp_path_factory, rates):
    header = [f"lr-Adam/pg{n}" for n in range(1, len(rates[0]) + 1)]
    rows = [[f"{value:.6g}" for value in groups] for groups in rates]
    table = load_rate_table(write_csv(tmp_path_factory.mktemp("csv") / "metrics.csv", header, rows))
    assert table.rtol == SIX_DIGITS_RTOL
    assert all(compare_rates(table, n, groups) is None for n, groups in enumerate(rates, start=1))


def test_only_text_that_keeps_six_digits_is_compared_more_loosely(tmp_path):
    exact = write_csv(tmp_path / "exact.csv", ["lr"], [[0.1], [0.1234567]])
    assert load_rate_table(exact).rtol == REFERENCE_RTOL
    assert load_rate_table(write_recording(tmp_path / "run.jsonl", FALLING)).rtol == REFERENCE_RTOL
    assert load_rate_table(write_csv(tmp_path / "short.csv", ["lr"], [[0.1]])).rtol > REFERENCE_RTOL


# ---- what Lightning writes ----------------------------------------------------------------------


class UsedRates(pl.Callback):
    """The rates of every optimizer step, read just before it is taken."""

    def __init__(self) -> None:
        self.rates: list[tuple[float, ...]] = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.rates.append(tuple(group["lr"] for group in optimizer.param_groups))


class Grouped(Small):
    """A parameter group, with a rate of its own, per parameter and then some."""

    def __init__(self, groups: int, **options: Any) -> None:
        super().__init__(**options)
        self.groups = groups
        self.extra = torch.nn.ParameterList(torch.ones(1) for _ in range(groups - 1))

    def loss(self, batch):
        return super().loss(batch) + sum(p.sum() for p in self.extra)

    def configure_optimizers(self):
        parameters = [list(self.net.parameters()), *([p] for p in self.extra)]
        groups = [{"params": p, "lr": 0.1 / n} for n, p in enumerate(parameters, start=1)]
        optimizer = torch.optim.SGD(groups, lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2 * BATCHES)
        config = {"scheduler": scheduler, "interval": self.interval}
        return {"optimizer": optimizer, "lr_scheduler": config}


@pytest.mark.parametrize("groups", [1, 2, 11])
@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2}], ids=["", "accumulated"])
@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_what_lightnings_monitor_logs_is_what_each_update_used(tmp_path, groups, options, interval):
    logger, used = CSVLogger(tmp_path, name="", version="csv"), UsedRates()
    recorder = StepRecorder(str(tmp_path / "run"))
    fit(
        [LearningRateMonitor(logging_interval="step"), used, recorder],
        model=Grouped(groups, interval=interval), logger=logger, log_every_n_steps=1, **options,
    )  # fmt: skip
    table = load_rate_table(tmp_path / "csv" / "metrics.csv")
    assert table.kind == "csv"
    assert list(table.rates) == used.rates
    assert len(set(used.rates)) > 1
    assert table.rates == load_rate_table(tmp_path / "run").rates


def test_a_monitor_that_logs_now_and_then_is_refused(tmp_path):
    logger = CSVLogger(tmp_path, name="", version="csv")
    fit([LearningRateMonitor(logging_interval="step")], logger=logger, log_every_n_steps=2)
    said = refusal(tmp_path / "csv" / "metrics.csv")
    assert "updates 1 to 3 must all be there, 2 is missing: log every update (Lightning: " in said


def test_a_monitor_that_logs_epochs_is_refused(tmp_path):
    logger = CSVLogger(tmp_path, name="", version="csv")
    fit([LearningRateMonitor(logging_interval="epoch")], logger=logger, log_every_n_steps=1)
    assert f"updates 0 to {BATCHES} must all be there" in refusal(tmp_path / "csv" / "metrics.csv")
