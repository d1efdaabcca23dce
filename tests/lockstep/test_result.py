"""The verdict over all modes, and the strict JSON that says it."""

import json
import math
from typing import Any

import msgspec
import pytest

from tests.compare.results import make_comparison, make_difference, make_mode, make_summary
from traingen.compare.summary import ModeResult
from traingen.compare.verdict import describe_mode
from traingen.lockstep.result import LockstepResult, judge

PASS, FAIL, OPEN = "pass", "fail", "inconclusive"


def mode_with(verdict: str, name: str = "natural", **changes: Any) -> ModeResult:
    if verdict == FAIL:
        left = make_difference(update=2, **changes)
        return make_mode(make_comparison(1), make_comparison(2, left), mode=name)
    if verdict == OPEN:
        return make_mode(make_comparison(1), mode=name)
    return make_mode(mode=name)


def too_short(name: str = "natural") -> ModeResult:
    summary = make_summary(make_comparison(1), mode=name)
    summary.failure = "package ended after 1 updates while the other went on"
    return summary.result(not_exercised=(), not_synchronized={})


def judged(*modes: ModeResult) -> LockstepResult:
    return judge({mode.mode: mode for mode in modes})


@pytest.mark.parametrize(
    ("verdicts", "verdict", "code"),
    [
        ((PASS, PASS, PASS), PASS, 0),
        ((PASS, FAIL, PASS), FAIL, 1),
        ((PASS, OPEN, PASS), OPEN, 2),
        ((OPEN, PASS, FAIL), FAIL, 1),
        ((OPEN,), OPEN, 2),
        ((), OPEN, 2),
    ],
)
def test_one_failed_mode_fails_and_one_open_mode_leaves_it_open(verdicts, verdict, code):
    result = judged(*(mode_with(v, f"mode{n}") for n, v in enumerate(verdicts)))
    assert (result.verdict, result.exit_code) == (verdict, code)


def test_the_cause_is_the_synchronized_modes_where_that_failed():
    natural = mode_with(FAIL, "natural", path="gradients.a")
    synchronized = mode_with(FAIL, "synchronized", path="gradients.b")
    result = judged(natural, synchronized)
    assert result.cause == "gradients.b"
    assert judged(natural, mode_with(PASS, "synchronized")).cause == "gradients.a"


def test_without_a_failed_mode_there_is_no_cause():
    result = judged(mode_with(PASS), mode_with(OPEN, "reseeded"))
    assert result.cause is None
    assert result.findings == ()


def test_each_cause_is_found_once():
    result = judged(
        mode_with(FAIL, "natural"), mode_with(FAIL, "reseeded"),
        mode_with(FAIL, "synchronized", quantity="lr", path="lr[0]"),
    )  # fmt: skip
    assert [f.id for f in result.findings] == ["TG-LOCKSTEP-LR", "TG-LOCKSTEP-GRADIENTS"]


def test_trainings_of_unequal_length_are_a_finding_of_their_own():
    result = judged(too_short())
    assert (result.verdict, result.cause) == (FAIL, None)
    (finding,) = result.findings
    assert finding.id == "TG-LOCKSTEP-LENGTH"
    assert finding.measured == "natural: package ended after 1 updates while the other went on"


def test_not_exercised_is_what_no_mode_has_put_to_the_test():
    first = make_mode(mode="natural", not_exercised=("clipping", "scheduler"))
    second = make_mode(mode="reseeded", not_exercised=("scheduler", "draws"))
    assert judged(first, second).not_exercised == ("scheduler",)
    assert judged(first).not_exercised == ("clipping", "scheduler")


def test_a_mode_without_updates_says_nothing_about_what_was_exercised():
    idle = make_summary(mode="reseeded").result(not_exercised=(), not_synchronized={})
    first = make_mode(mode="natural", not_exercised=("clipping",))
    assert judged(first, idle).not_exercised == ("clipping",)
    assert judged(idle).not_exercised == ("everything: no update was compared",)


# ---- JSON ---------------------------------------------------------------------------------------


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no strict JSON")


def test_the_result_is_strict_json_and_says_nonfinite_numbers_by_name():
    left = make_difference("objective", original=math.nan, package=-math.inf, absolute=math.inf)
    result = judged(make_mode(make_comparison(1, left, loss_relative=math.inf)))
    plain = json.loads(json.dumps(result.to_json(), allow_nan=False), parse_constant=refuse)
    mode = plain["modes"]["natural"]
    assert mode["first_divergence"]["original"] == "NaN"
    assert mode["first_divergence"]["package"] == "-Infinity"
    assert mode["loss_departure"] == {"update": 1, "relative": "Infinity"}
    assert mode["largest"] == {"objective": "Infinity"}
    assert json.loads(msgspec.json.encode(result.to_json())) == plain


def test_the_result_has_the_fields_that_every_command_prints():
    plain = judged(mode_with(FAIL), mode_with(PASS, "reseeded")).to_json()
    assert plain["verdict"] == "fail"
    assert plain["exit_code"] == 1
    assert plain["updates"] == 2
    assert plain["first_divergence"] == {
        "update": 2, "quantity": "gradients", "path": "gradients.w",
    }  # fmt: skip
    assert plain["cause"] == "gradients.w"
    assert [f["id"] for f in plain["findings"]] == ["TG-LOCKSTEP-GRADIENTS"]
    assert set(plain["findings"][0]) == {"id", "severity", "measured", "meaning", "fix"}
    assert plain["not_exercised"] == []
    assert list(plain["modes"]) == ["natural", "reseeded"]


def test_updates_are_those_of_the_shortest_mode():
    assert judged(mode_with(PASS), mode_with(OPEN, "reseeded")).to_json()["updates"] == 1
    assert judged().to_json()["updates"] == 0


def test_a_pass_has_no_divergence():
    plain = judged(mode_with(PASS)).to_json()
    assert (plain["first_divergence"], plain["cause"], plain["findings"]) == (None, None, [])


def test_a_mode_is_described_in_full():
    mode = make_mode(horizon={"gradients": 5}, not_synchronized={"ema": "outside"})
    plain = describe_mode(mode)
    assert set(plain) == set(ModeResult.__dataclass_fields__) - {"mode"}
    assert plain["horizon"] == {"gradients": 5}
    assert plain["not_synchronized"] == {"ema": "outside"}
