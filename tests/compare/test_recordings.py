"""Two recordings: where they part, that they do not, and when nobody can tell."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare.test_records import CHANGES, WHOLE
from tests.reading.recordings import (
    OBSERVES,
    change,
    ended_after,
    make_training,
    make_updates,
    resumed_at,
    seeing_run,
    write_ranks,
    write_recording,
)
from tests.records.samples import make_event, make_update
from traingen.compare.gates import Gates
from traingen.compare.order import GATED
from traingen.compare.recordings import compare_recordings
from traingen.errors import RecordingError
from traingen.records import ClosureFacts, OptimizerIdentity, SchedulerState

NAN = math.nan
TRAINING = make_training(6)
# A generator that only one recorder digests is not known to differ: see test_visibility.
FOUND = [row for row in CHANGES if row[3] != "rng.begin.python"]


@pytest.fixture
def compare(tmp_path):
    """The result for two lists of records."""

    def write_and_compare(original, package, **options):
        paths = [
            write_recording(tmp_path / f"{name}{len(list(tmp_path.iterdir()))}", records)
            for name, records in (("original", original), ("package", package))
        ]
        return compare_recordings(*paths, **options)

    return write_and_compare


# ---- equal and not ------------------------------------------------------------------------------


def test_a_recording_compared_with_itself_passes_in_every_value(compare):
    result = compare(TRAINING, TRAINING)
    assert (result.verdict, result.exit_code, result.cause) == ("pass", 0, None)
    assert (result.mode.updates, result.mode.equal_updates) == (6, 6)
    assert result.findings == ()
    assert sum(result.mode.compared.values()) > 100


numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def trainings(draw):
    """Updates of one or two optimizers with any finite numbers, attempts and events."""
    records = [seeing_run()]
    counts = {0: 0, 1: 0}
    for optimizer in draw(st.lists(st.sampled_from([0, 0, 1]), min_size=1, max_size=8)):
        counts[optimizer] += 1
        loss, norm = draw(numbers), draw(numbers)
        records.append(
            make_update(counts[optimizer], optimizer=optimizer, loss=loss, objective=loss,
                        grad_norm=norm, lr=[draw(numbers)], clipped=draw(st.booleans()))
        )  # fmt: skip
    return records


@given(records=trainings())
def test_any_recording_compared_with_itself_passes(tmp_path_factory, records):
    path = write_recording(tmp_path_factory.mktemp("self") / "run", records)
    result = compare_recordings(path, path)
    assert (result.verdict, result.cause, result.findings) == ("pass", None, ())
    assert result.mode.updates == len(records) - 1


@pytest.mark.parametrize(
    ("field", "value", "quantity", "path"),
    FOUND,
    ids=[f"{row[3]}-{number}" for number, row in enumerate(FOUND)],
)
def test_one_changed_value_is_found_at_its_name_and_update(compare, field, value, quantity, path):
    records = [msgspec.structs.replace(WHOLE, update=n) for n in range(1, 5)]
    result = compare(
        [seeing_run(), *records], change([seeing_run(), *records], 3, **{field: value})
    )
    first = result.mode.first_divergence
    assert (first.update, first.quantity, first.path) == (3, quantity, path)
    assert (result.verdict, result.exit_code, result.cause) == ("fail", 1, path)
    (finding,) = result.findings
    assert finding.id == f"TG-LOCKSTEP-{quantity.removeprefix('tail.').upper().replace('_', '-')}"
    assert result.mode.equal_updates == 3


@given(
    update=st.integers(1, 6),
    factor=st.floats(0.5, 2.0),
    rtol=st.floats(0, 1),
    more=st.floats(0, 1),
)
def test_a_looser_tolerance_never_turns_a_pass_into_a_fail(
    tmp_path_factory, update, factor, rtol, more
):
    folder = tmp_path_factory.mktemp("loose")
    original = write_recording(folder / "a", TRAINING)
    lr = [0.001 * factor]
    package = write_recording(folder / "b", change(TRAINING, update, lr=lr))
    strict, loose = (
        compare_recordings(original, package, gates=Gates.of_numbers(lr={"rtol": limit}))
        for limit in (rtol, rtol + more)
    )
    assert loose.verdict == "pass" or strict.verdict == "fail"
    assert (strict.verdict == "pass") == (abs(lr[0] - 0.001) <= rtol * 0.001)


def test_the_earliest_update_counts_and_in_it_the_earliest_in_causal_order(compare):
    package = change(change(TRAINING, 5, batch=None), 3, grad_norm=9.0, lr=[9.0], objective=8.0)
    assert compare(TRAINING, package).cause == "objective"


def test_a_value_within_its_gate_is_a_pass_and_told(compare):
    gates = Gates.of_numbers(lr={"rtol": 0.5})
    result = compare(TRAINING, change(TRAINING, 3, lr=[0.0011]), gates=gates)
    assert (result.verdict, result.mode.equal_updates) == ("pass", 5)
    assert result.mode.earliest_difference.path == "lr[0]"


def test_where_the_loss_departs_is_told_without_a_gate_on_it(compare):
    gates = Gates.of_numbers(objective={"report_only": True})
    result = compare(TRAINING, change(TRAINING, 4, loss=0.6), gates=gates)
    assert result.mode.loss_departure[0] == 4


def test_a_pass_must_have_asserted_something_that_training_computes(compare):
    nothing = [seeing_run(observes=["lr", "batch"]), *make_updates(1, 3)]
    result = compare(nothing, nothing)
    assert (result.verdict, result.exit_code) == ("inconclusive", 2)
    assert "was asserted" in result.mode.reason
    lenient = Gates.of_numbers(**{name: {"report_only": True} for name in GATED})
    assert compare(TRAINING, TRAINING, gates=lenient).verdict == "inconclusive"


# ---- what is there ------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", [False, True])
def test_recordings_of_unequal_length_fail(compare, swapped):
    pair = (TRAINING, make_training(4))
    result = compare(*(pair[::-1] if swapped else pair))
    assert (result.verdict, result.mode.updates) == ("fail", 4)
    (finding,) = result.findings
    assert finding.id == "TG-LOCKSTEP-LENGTH"
    assert "has 6 updates" in finding.measured
    assert "has 4" in finding.measured


def test_the_shorter_one_may_be_running_still_and_that_is_said(compare):
    result = compare(TRAINING, TRAINING[:4])
    assert "package has 3 and no end line: it is still running, or was killed" in str(
        result.findings[0]
    )
    stopped = [*TRAINING[:4], ended_after(3, reason="interrupted")]
    assert "ended by 'interrupted'" in str(compare(TRAINING, stopped).findings[0])


def test_a_common_part_can_be_asked_for(compare):
    assert compare(TRAINING, make_training(4), updates=4).verdict == "pass"
    assert compare(TRAINING, make_training(4), updates=5).verdict == "fail"
    late = change(TRAINING, 5, lr=[1.0])
    assert compare(TRAINING, late, updates=4).verdict == "pass"
    assert compare(TRAINING, late, updates=5).verdict == "fail"


def test_more_than_both_hold_cannot_be_judged(compare):
    result = compare(TRAINING, TRAINING, updates=9)
    assert (result.verdict, result.mode.reason) == ("inconclusive", "6 of 9 updates were compared")


@pytest.mark.parametrize(
    ("original", "package"),
    [
        ([seeing_run()], [seeing_run()]),
        (TRAINING, [seeing_run()]),
        (make_training(2), [resumed_at(4), *make_updates(5, 6)]),
    ],
    ids=["neither", "one", "apart"],
)
def test_nothing_in_common_cannot_be_judged(compare, original, package):
    result = compare(original, package)
    assert (result.verdict, result.exit_code) == ("inconclusive", 2)
    assert result.mode.reason == "no update is in both recordings"
    assert result.findings == ()


def test_values_that_are_not_finite_on_both_sides_prove_nothing(compare):
    poor = change(TRAINING, 4, loss=NAN)
    result = compare(poor, poor)
    assert (result.verdict, result.mode.updates) == ("inconclusive", 3)
    assert "not finite at update 4" in result.mode.reason
    assert compare(TRAINING, poor).verdict == "fail"


def test_missing_recordings_are_an_error(tmp_path):
    path = write_recording(tmp_path / "a", TRAINING)
    with pytest.raises(RecordingError, match="no such recording"):
        compare_recordings(path, tmp_path / "b")


# ---- attempts -----------------------------------------------------------------------------------


def resumed_training(ticks_restart=True):
    """Interrupted after update 4, resumed after 2; schedulers count from 0 again."""
    again = make_updates(3, 6)
    if ticks_restart:
        again = [
            msgspec.structs.replace(
                record,
                scheduler=[SchedulerState(id=0, last_epoch=record.update - 1, ticks=place)],
            )
            for place, record in enumerate(again)
        ]
    old = change(make_updates(1, 4), 4, loss=77.0)
    return [seeing_run(), *old, resumed_at(2), *again, ended_after(6)]


def test_a_resumed_run_equals_one_that_was_never_interrupted(compare):
    result = compare(TRAINING, resumed_training())
    assert (result.verdict, result.mode.updates, result.mode.equal_updates) == ("pass", 6, 6)
    (old,) = result.package.superseded
    assert (old.first, old.last, old.attempt) == (3, 4, 1)
    assert compare(resumed_training(), TRAINING).verdict == "pass"


def test_what_a_resume_changed_is_found(compare):
    result = compare(TRAINING, change(resumed_training(), 5, lr=[1.0]))
    assert (result.mode.first_divergence.update, result.cause) == (5, "lr[0]")


def test_updates_that_a_file_does_not_hold_are_not_compared_and_said(compare):
    late = [resumed_at(3), *resumed_training()[-4:]]
    result = compare(TRAINING, late)
    assert (result.verdict, result.mode.updates) == ("pass", 3)
    assert any("updates 1 to 3: missing in package" in line for line in result.not_compared)
    assert compare(TRAINING, late, updates=6).verdict == "inconclusive"


def test_a_torn_tail_is_told(tmp_path):
    original = write_recording(tmp_path / "a", TRAINING)
    package = write_recording(tmp_path / "b", TRAINING[:-1], tail=b'{"kind":"upd')
    result = compare_recordings(original, package)
    assert (result.package.torn, result.package.ended) == (12, None)
    assert result.verdict == "pass"


# ---- several optimizers -------------------------------------------------------------------------


def alternating(first, second, updates=4, **changes):
    run = seeing_run(
        optimizers=[
            OptimizerIdentity(index=i, class_path=f"Optimizer{i}", groups=1, parameters=1)
            for i in (0, 1)
        ]
    )
    records = [
        make_update(number, optimizer=optimizer)
        for number in range(1, updates + 1)
        for optimizer in (first, second)
    ]
    return [run, *records]


def test_optimizers_are_compared_each_with_its_own(compare):
    original = alternating(0, 1)
    package = [
        msgspec.structs.replace(record, lr=[0.5]) if place == 6 else record
        for place, record in enumerate(original)
    ]
    result = compare(original, package)
    assert (result.cause, result.mode.first_divergence.update) == ("optimizers[1].lr[0]", 3)
    assert compare(original, original).mode.updates == 8


def test_optimizers_in_another_order_fail_though_all_values_agree(compare):
    result = compare(alternating(0, 1), alternating(1, 0))
    assert (result.verdict, result.cause) == ("fail", None)
    assert [finding.id for finding in result.findings] == ["TG-LOCKSTEP-ORDER"]


def test_an_optimizer_that_one_side_lacks_is_told(compare):
    result = compare(TRAINING[:5], alternating(0, 1))
    (finding,) = result.findings
    assert (result.verdict, finding.id) == ("fail", "TG-LOCKSTEP-LENGTH")
    assert "package has 4 updates of optimizer 1, original has 0" in finding.measured
    assert "optimizers.number" in [d.path for d in result.run_differences]


def test_as_many_updates_are_asked_for_of_each_optimizer(compare):
    both = alternating(0, 1)
    assert compare(both, both, updates=4).verdict == "pass"
    assert compare(both, both, updates=5).mode.reason == "8 of 10 updates were compared"


# ---- what is not known --------------------------------------------------------------------------


def test_a_field_that_one_recorder_does_not_see_is_not_a_difference(compare):
    blind = seeing_run(observes=[name for name in OBSERVES if name not in ("ema", "batch")])
    package = [blind, *make_updates(1, 6, ema=None, batch=None), ended_after(6)]
    result = compare(TRAINING, package)
    assert result.verdict == "pass"
    assert "batch, ema: the package's recorder does not see it" in result.not_compared
    seen = [seeing_run(), *package[1:]]
    assert compare(TRAINING, seen).cause == "ema"


def test_that_tensors_were_not_compared_is_always_said(compare):
    for result in (compare(TRAINING, TRAINING), compare(TRAINING, make_training(2))):
        assert any(line.startswith("tensors: ") for line in result.not_compared)


def test_of_one_rank_it_is_said_that_others_are_not_compared(compare):
    spread = [seeing_run(world_size=4), *TRAINING[1:]]
    lines = compare(spread, spread, rank=0).not_compared
    assert "other ranks of package: this is rank 0 of 4" in lines
    assert not any("ranks" in line for line in compare(TRAINING, TRAINING).not_compared)


def test_the_samplers_of_loaders_are_told_and_not_judged(compare):
    package = change(TRAINING, 3, data_sampler={"class_path": "S", "seed": 4, "epoch": 0})
    result = compare(TRAINING, package)
    assert result.verdict == "pass"
    (note,) = result.mode.notes
    assert note.startswith("data samplers differ from update 3 on: class_path ")
    assert compare(TRAINING, TRAINING).mode.notes == ()


def test_run_lines_that_differ_are_told_and_not_judged(compare):
    result = compare(TRAINING, [seeing_run(seed=8), *TRAINING[1:]])
    assert result.verdict == "pass"
    assert [(d.path, d.original, d.package) for d in result.run_differences] == [("seed", 7, 8)]


def test_what_was_not_exercised_is_said(compare):
    still = [SchedulerState(id=0, last_epoch=0, ticks=0)]
    quiet = make_training(3, clipped=False, scheduler=still)
    lines = compare(quiet, quiet).mode.not_exercised
    assert "clipping: it never changed a gradient in the package" in lines
    assert "scheduler: it never ticked" in lines
    assert compare(TRAINING, TRAINING).mode.not_exercised == ()


# ---- several ranks ------------------------------------------------------------------------------


@pytest.fixture
def compare_ranks(tmp_path):
    """The result for two lists with the records of each rank."""

    def write_and_compare(original, package, **options):
        number = len(list(tmp_path.iterdir()))
        mine = write_ranks(tmp_path / f"original{number}", *original)
        theirs = write_ranks(tmp_path / f"package{number}", *package)
        return compare_recordings(mine, theirs, **options)

    return write_and_compare


def test_ranks_are_compared_as_one_training(compare_ranks):
    """The losses of rank 0 agree, and those of all do not; and the other way round."""
    one, two, three = (make_training(4, loss=loss) for loss in (1.0, 2.0, 3.0))
    result = compare_ranks([one, two], [one, three])
    assert (result.verdict, result.cause) == ("fail", "loss")
    first = result.mode.first_divergence
    assert (first.original, first.package) == (1.5, 2.0)
    assert compare_ranks([one, two], [one, two]).verdict == "pass"
    assert compare_ranks([one, three], [two, two]).verdict == "pass"
    assert compare_ranks([one, two], [one, three], rank=0).verdict == "pass"
    assert compare_ranks([one, three], [two, two], rank=1).cause == "loss"


def test_what_each_rank_has_of_its_own_is_told_not_to_be_compared(compare_ranks):
    result = compare_ranks([TRAINING] * 2, [TRAINING, change(TRAINING, 3, batch=None)])
    assert result.verdict == "pass"
    (line,) = (line for line in result.not_compared if "other ranks of package" in line)
    assert "batch, rng" in line
    assert compare_ranks([TRAINING] * 2, [TRAINING, change(TRAINING, 3, batch=None)], rank=1).cause


def test_one_process_is_compared_with_several_that_share_its_data(compare_ranks):
    mine = make_training(4, loss=2.0)
    theirs = [
        make_training(4, loss=loss, batch=None, rng={"torch": "x"}, parameters="e9")
        for loss in (1.0, 3.0)
    ]
    result = compare_ranks([mine], theirs)
    assert result.verdict == "pass"
    assert any(
        line.startswith(
            "batch, parameters, rng, rng_after, rng_forward, sampler, user: one training has"
        )
        for line in result.not_compared
    )
    assert compare_ranks([mine], [theirs[0]] * 2).cause == "loss"


def test_ranks_that_do_not_fit_together_are_told(compare_ranks):
    poor = [TRAINING, change(TRAINING, 2, lr=[0.5])]
    result = compare_ranks([TRAINING] * 2, poor)
    assert (result.verdict, result.exit_code) == ("inconclusive", 2)
    assert result.mode.reason == (
        "ranks of package disagree in lr, first at update 2: rank 0 does not speak for the others"
    )
    assert compare_ranks(poor, [TRAINING] * 2).mode.reason.startswith("ranks of original disagree")
    assert compare_ranks(poor, [TRAINING]).verdict == "inconclusive"
    assert compare_ranks(poor, poor).verdict == "pass"
    assert result.mode.notes == (
        "ranks of package: lr differs in 1 updates, first 2: [0.001] on rank 0; [0.5] on rank 1",
    )
    assert result.to_json()["package"]["ranks"]["disagreements"][0]["field"] == "lr"
    assert result.to_json()["original"]["ranks"]["merged"] == 2
    assert compare_ranks([TRAINING] * 2, [TRAINING] * 2).mode.notes == ()


def test_a_rank_that_is_shorter_makes_the_recording_shorter(compare_ranks):
    result = compare_ranks([TRAINING] * 2, [TRAINING, TRAINING[:4]])
    assert (result.verdict, [one.id for one in result.findings]) == ("fail", ["TG-LOCKSTEP-LENGTH"])
    assert "package has 3" in result.findings[0].measured


def test_a_missing_rank_is_an_error(tmp_path):
    path = write_ranks(tmp_path / "a", TRAINING, TRAINING)
    (path / "updates.rank1.jsonl").unlink()
    with pytest.raises(RecordingError, match="no recording of rank 1"):
        compare_recordings(path, path)
    assert compare_recordings(path, path, rank=0).verdict == "pass"


# ---- JSON ---------------------------------------------------------------------------------------


def test_the_result_is_strict_json_with_the_common_fields(compare):
    result = compare(TRAINING, change(TRAINING, 2, loss=math.inf, grad_norm=NAN))
    plain = result.to_json()
    text = json.dumps(plain, allow_nan=False)
    assert json.loads(text) == plain
    assert plain["first_divergence"] == {"update": 2, "quantity": "objective", "path": "loss"}
    assert (plain["verdict"], plain["exit_code"], plain["updates"]) == ("fail", 1, 6)
    assert plain["cause"] == "loss"
    assert [f["id"] for f in plain["findings"]] == ["TG-LOCKSTEP-OBJECTIVE"]
    assert plain["original"]["updates"] == {"0": 6}
    assert {"not_exercised", "not_compared", "comparison", "run_differences"} <= plain.keys()


# ---- what both look for, and one alone has -------------------------------------------------------


def lines_of(result):
    return "\n".join(result.not_compared)


def test_probes_are_compared_member_by_member(compare):
    original = make_training(4, user={"temperature": {"value": 0.5, "is_cooling": True}})
    package = change(original, 3, user={"temperature": {"value": 50.0, "is_cooling": True}})
    result = compare(original, package)
    assert (result.verdict, result.cause) == ("fail", "user.temperature.value")
    assert result.findings[0].id == "TG-LOCKSTEP-USER"
    assert result.mode.compared["tail.user"] == 5  # that of update 3 by its two members
    assert compare(original, original).verdict == "pass"
    loose = Gates.of_numbers(user={"atol": 50.0})
    assert compare(original, package, gates=loose).verdict == "pass"


def test_probes_of_one_side_are_not_known_unless_the_other_has_probes_too(compare):
    probed = make_training(3, user={"temperature": 0.5})
    without = seeing_run(observes=[name for name in OBSERVES if name != "user"])
    result = compare(probed, [without, *TRAINING[1:4], ended_after(3)])
    assert result.verdict == "pass"
    assert "user: the package's recorder does not see it" in result.not_compared
    assert compare(probed, make_training(3)).cause == "user.temperature"
    nobody = [without, *TRAINING[1:4]]
    assert "user:" not in lines_of(compare(nobody, nobody))


ONE_SIDED = [
    ("loss_terms", None, "loss_terms.cross_entropy"),
    ("loss_terms", {}, "loss_terms.cross_entropy"),
    ("layer_norms", None, "layer_norms"),
    ("update_ratios", None, "update_ratios"),
    ("moment_norms", None, "moment_norms.exp_avg"),
    ("closure", ClosureFacts(evaluations=3, first_objective=0.5, last_objective=0.2),
     "closure.evaluations"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "path"), ONE_SIDED, ids=str)
@pytest.mark.parametrize("swapped", [False, True], ids=["package", "original"])
def test_what_both_look_for_and_one_alone_has_is_a_difference(compare, field, value, path, swapped):
    pair = (TRAINING, change(TRAINING, 4, **{field: value}))
    result = compare(*(pair[::-1] if swapped else pair))
    assert (result.verdict, result.cause) == ("fail", path)
    assert result.mode.first_divergence.update == 4
    blind = seeing_run(observes=[name for name in OBSERVES if name != field])
    hidden = [[blind, *records[1:]] for records in pair]
    assert compare(*hidden).verdict == "pass"
    assert f"{field}: neither recorder sees it" in lines_of(compare(*hidden))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"layer_norms": {"0.weight": 1.9}}, "layer_norms: the parameters have other names"),
        ({"update_ratios": {"w": 1.0}}, "update_ratios: the parameters have other names"),
        ({"loss": None}, "loss: package does not tell it"),
        ({"rng": {"torch": "bb"}}, "rng.python: only original digests this generator"),
        ({"rng_after": {"torch": "cc", "cuda": "x"}}, "rng_after.cuda: only package digests"),
        ({"ema": {"class_path": "Other", "decay": 0.999, "updates": 3, "distance": 0.5}},
         "ema.class_path: who averages"),
        ({"ema": {"class_path": "Ema", "decay": None, "updates": 3, "distance": 0.5}},
         "ema.decay: package does not tell it"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_compared_is_named_with_its_updates(compare, changes, line):
    result = compare(TRAINING, change(TRAINING, 4, **changes))
    (found,) = (one for one in result.not_compared if one.startswith(line))
    assert found.endswith("(in 1 updates, first 4)")
    assert result.verdict == "pass"
    assert line not in lines_of(compare(TRAINING, TRAINING))


@pytest.mark.parametrize(
    "field",
    ["epoch", "global_step", "divisor", "micro_losses", "data_sampler", "batch_idx",
     "total_batch_idx", "batches_that_stepped"],
)  # fmt: skip
def test_fields_that_are_never_compared_are_always_named(compare, field):
    assert field in lines_of(compare(TRAINING, TRAINING))


def test_more_than_numbers_of_groups_is_named_where_they_differ(compare):
    gates = Gates.of_numbers(optimizer={"report_only": True})
    result = compare(TRAINING, change(TRAINING, 2, lr=[0.1, 0.2]), gates=gates)
    assert "lr, hyper_parameters: the parameter groups are not as many" in lines_of(result)


def test_an_update_without_a_batch_is_named_as_not_compared(compare):
    gates = Gates.of_numbers(batch={"report_only": True})
    result = compare(TRAINING, change(TRAINING, 2, micro_batches=0, lr=[9.0]), gates=gates)
    assert "all but micro_batches: on one side the update has no batch" in lines_of(result)


# ---- skipped steps -------------------------------------------------------------------------------


def skipping(*before, updates=6, optimizer=0):
    """A training that leaves out one step before each of these updates."""
    records = [seeing_run()]
    for number in range(1, updates + 1):
        records += [
            make_event(event="skipped_step", update=number - 1,
                       details={"optimizer": optimizer, "reason": "scaler"})
            for update in before if update == number
        ]  # fmt: skip
        records.append(make_update(number))
    return [*records, ended_after(updates)]


def test_steps_that_one_side_left_out_are_a_difference(compare):
    result = compare(TRAINING, skipping(3, 5, 5))
    first = result.mode.first_divergence
    assert (result.verdict, result.cause, first.update) == ("fail", "skipped_steps", 3)
    assert (first.quantity, first.original, first.package) == ("tail.scaler", 0, 1)
    assert compare(skipping(3, 5, 5), skipping(3, 5)).mode.first_divergence.update == 5
    assert compare(skipping(3, 5, 5), skipping(3, 5, 5)).verdict == "pass"
    assert compare(TRAINING, skipping(3, optimizer=1)).verdict == "pass"  # not of these updates


def test_steps_left_out_before_an_update_that_a_file_does_not_hold_are_not_known(compare):
    late = [resumed_at(3), *make_updates(4, 6), ended_after(6)]
    assert compare(skipping(4), late).cause != "skipped_steps"
    assert compare(skipping(5), late).cause == "skipped_steps"


def test_skipped_steps_are_not_known_to_who_does_not_see_the_scaler(compare):
    blind = seeing_run(observes=[name for name in OBSERVES if name != "amp_scale"])
    result = compare(TRAINING, [blind, *skipping(3)[1:]])
    assert result.verdict == "pass"
    assert "amp_scale: the package's recorder does not see it" in result.not_compared


# ---- what was asserted ---------------------------------------------------------------------------


def test_digests_that_are_only_reported_are_nothing_that_was_asserted(compare):
    records = make_training(4, update_ratios=None)
    other = [records[0], *make_updates(1, 4, update_ratios=None, parameters="x"), records[-1]]
    quiet = {"report_only": True}
    gates = Gates.of_numbers(
        parameters={"rtol": 1e-9}, objective=quiet, grad_norm=quiet, lr=quiet, clipping=quiet
    )
    result = compare(records, other, gates=gates)
    assert (result.verdict, result.exit_code) == ("inconclusive", 2)
    assert result.mode.compared["parameters"] == 4
    assert "parameters" in result.mode.not_asserted
    asserting = Gates.of_numbers(parameters={"rtol": 1e-9}, grad_norm=quiet)
    assert compare(records, other, gates=asserting).verdict == "pass"  # by the objective
    assert (
        compare(
            records,
            records,
            gates=Gates.of_numbers(
                objective=quiet,
                grad_norm=quiet,
            ),
        ).verdict
        == "pass"
    )  # exact digests


# ---- clipping ------------------------------------------------------------------------------------


def test_a_clip_left_out_is_named_by_its_flag_and_not_by_a_number(compare):
    original = make_training(4, grad_norm_source="clip")
    package = change(
        original, 3, clipped=False, grad_norm_clipped=1.93, clip_coefficient=1.0,
        grad_norm_source="measured",
    )  # fmt: skip
    result = compare(original, package)
    assert result.cause == "clipping.clipped"
    assert "original True, package False (gate: exact)" in result.findings[0].measured


def test_a_clip_that_the_original_made_is_not_said_to_have_happened_nowhere(compare):
    package = make_training(4, clipped=False)
    lines = compare(TRAINING, package).mode.not_exercised
    assert "clipping: it never changed a gradient in the package" in lines
    assert not any("clipping" in line for line in compare(package, TRAINING).mode.not_exercised)
