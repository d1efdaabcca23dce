"""What two run lines say differently."""

from tests.records.samples import make_run
from traingen.compare.runs import FIELDS, RunDifference, compare_runs
from traingen.records import OptimizerIdentity, RunRecord

ADAM = OptimizerIdentity(index=0, class_path="torch.optim.Adam", groups=1, parameters=42)
SGD = OptimizerIdentity(index=0, class_path="torch.optim.SGD", groups=2, parameters=42)


def paths(**changes):
    return [d.path for d in compare_runs(make_run(), make_run(**changes))]


def test_a_run_does_not_differ_from_itself():
    assert compare_runs(make_run(), make_run()) == ()


def test_values_are_named_by_where_they_are():
    (found,) = compare_runs(make_run(), make_run(seed=8))
    assert found == RunDifference(path="seed", original=7, package=8)
    assert paths(optimizers=[SGD]) == ["optimizers[0].class_path", "optimizers[0].groups"]
    assert paths(clipping={"value": 2.0, "algorithm": "norm"}) == ["clipping.value"]


def test_another_number_is_a_difference_and_the_common_ones_are_compared():
    assert paths(optimizers=[SGD, ADAM]) == [
        "optimizers.number", "optimizers[0].class_path", "optimizers[0].groups",
    ]  # fmt: skip


def test_what_only_one_tells_is_not_known_to_differ():
    assert paths(seed=None, loader=None, precision=None) == []


def test_what_always_differs_is_not_looked_at():
    assert paths(run_id="f" * 32, system="original", argv=["x"], attempt=2) == []
    assert set(FIELDS) <= set(RunRecord.__struct_fields__)
