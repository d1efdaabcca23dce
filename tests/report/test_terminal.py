"""A result as plain text: what it says, and that it fits 80 columns."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compare.results import make_comparison, make_difference, make_mode, make_summary
from traingen.compare.gates import Gates
from traingen.compare.order import CAUSAL_ORDER
from traingen.compare.summary import ModeResult
from traingen.lockstep.result import judge
from traingen.report.layout import WIDTH
from traingen.report.terminal import render_lockstep

GATES = Gates.of_numbers(gradients={"rtol": 1e-5, "atol": 1e-7})
LONG = "optimizer_state.exp_avg_sq.network.encoder.transformers.0.shared.0.norm.norm.weight.more"


def render(*modes: ModeResult, title: str = "tabnet", source: str = "not measured") -> str:
    result = judge({mode.mode: mode for mode in modes})
    return render_lockstep(result, title=title, gates=GATES, horizon_source=source)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_pass_says_so_and_what_it_does_not_speak_for():
    text = render(make_mode(mode="natural", not_exercised=("buffer mean: it never moved",)))
    lines = text.splitlines()
    assert lines[0] == "VERDICT  PASS  tabnet: every asserted gate held at every update"
    assert lines[2:4] == [
        "mode     updates  equal bits  verdict  first gate left",
        "natural  2/2      2           pass     none",
    ]
    assert "not exercised   buffer mean: it never moved" in lines
    assert "natural: relative loss difference never over 0.001, at most 0" in lines


def test_a_fail_names_quantity_update_cause_and_fix():
    left = make_difference("lr", update=2, path="lr[0]")
    text = render(make_mode(make_comparison(1), make_comparison(2, left)))
    assert re.match(r"VERDICT  FAIL  tabnet: .*\blr\b.* at update 2\n", text)
    assert "update 2: lr[0]" in text
    assert "ERROR  TG-LOCKSTEP-LR" in text
    assert "measured lr[0] differs at update 2: original 1.0, package 2.0" in flat(text)
    assert "fix Compare initial rates" in flat(text)


def test_an_open_verdict_says_why():
    text = render(make_mode(make_comparison(1)))
    assert text.startswith("VERDICT  INCONCLUSIVE  tabnet: 1 of 2 updates were compared\n")
    assert "ERROR" not in text


def test_nothing_run_is_nothing_compared():
    text = render()
    assert text.startswith("VERDICT  INCONCLUSIVE  tabnet: nothing was compared\n")
    assert "everything: no update was compared" in text


def test_a_verdict_gives_the_reason_of_a_mode_with_that_verdict():
    short = make_summary(make_comparison(1), mode="reseeded")
    short.failure = "package ended after 1 updates"
    failed = short.result(not_exercised=(), not_synchronized={})
    text = render(make_mode(make_comparison(1), mode="natural"), failed)
    assert text.startswith("VERDICT  FAIL  tabnet: package ended after 1 updates\n")


def test_what_is_beyond_the_horizon_is_called_report_only():
    late = make_difference(update=2)
    text = render(make_mode(make_comparison(1), make_comparison(2, late), horizon={"gradients": 1}))
    assert "VERDICT  PASS" in text
    assert "update 2, report-only: gradients.w" in text
    assert "natural: report-only after update gradients 1" in flat(text)


def test_where_the_loss_departs_is_said():
    small = make_difference(left=False)
    first = make_comparison(1, small, loss_relative=1e-5)
    text = render(make_mode(first, make_comparison(2, loss_relative=0.5)))
    assert "first over 0.001 at update 2 (0.5)" in flat(text)
    assert "first bit that differed: update 1, gradients.w" in flat(text)
    assert "relative loss difference not compared" in flat(
        render(make_mode(make_comparison(1, loss_relative=None)))
    )


def test_what_was_not_synchronized_and_notes_are_said():
    summary = make_summary(make_comparison(1), make_comparison(2), mode="synchronized")
    summary.notes.append("package raised while it was being ended")
    text = render(summary.result(not_exercised=(), not_synchronized={"schedulers": "1 and 2"}))
    assert "synchronized: not synchronized: schedulers: 1 and 2" in text
    assert "synchronized: package raised while it was being ended" in text
    assert "not exercised   nothing that is watched for" in text


def test_every_mode_has_its_row():
    text = render(make_mode(mode="natural"), make_mode(mode="synchronized"))
    rows = [line for line in text.splitlines() if line.endswith("none")]
    assert [row.split()[0] for row in rows] == ["natural", "synchronized"]


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("verdict", ["pass", "fail", "inconclusive"])
def test_no_line_is_wider_than_the_terminal_whatever_the_names(verdict):
    left = make_difference("optimizer_state", update=2, path=LONG, original="x" * 99)
    summary = make_summary(
        make_comparison(1),
        *([make_comparison(2, left)] if verdict == "fail" else []),
        mode="synchronized", horizon=dict.fromkeys(["gradients", "parameters", "buffers"], 123456),
        asked=1 if verdict == "pass" else 2,
    )  # fmt: skip
    summary.notes.append("a note " * 30 + LONG * 2)
    if verdict == "inconclusive":
        summary.doubt = (
            "both systems ended after 280 of 300 updates: let them train longer, or less"
        )
    mode = summary.result(
        not_exercised=[f"parameter {LONG}: its gradient was zero throughout", "y" * 200],
        not_synchronized={LONG: "z" * 100},
    )
    text = render(mode, title="a_pair_with_quite_a_long_name" * 3, source=f"a/b/{LONG}/{LONG}.json")
    assert mode.verdict == verdict
    assert widest(text) <= WIDTH == 80


@given(
    quantity=st.sampled_from(CAUSAL_ORDER),
    path=st.text("abc. _", max_size=200),
    update=st.integers(1, 10**9),
    size=st.floats(0, allow_nan=False),
    title=st.text("ab_", max_size=90),
)
def test_no_difference_is_too_wide(quantity, path, update, size, title):
    left = make_difference(quantity, update, path=path)
    mode = make_mode(make_comparison(update, left, loss_relative=size))
    assert widest(render(mode, title=title)) <= WIDTH


def test_the_scope_and_the_limits_are_said_with_every_verdict():
    text = flat(render(make_mode(make_difference_in(0.5), make_comparison(2))))
    assert "compared per update: 3 parameters, 2 gradients" in text
    assert "gates gradients rtol=1e-05, atol=1e-07; all else exact" in text
    allowed = flat(render(make_mode(replace(make_comparison(1), allowed=("grad_norm",)))))
    assert "grad_norm rtol=0.001 where one side alone has its clip's own norm; all" in allowed
    assert "largest natural: gradients 0.5" in text


def make_difference_in(size: float):
    return make_comparison(1, make_difference(absolute=size, left=False))
