"""What every finding of a kind has in common, and what a single one may say better."""

import pytest

from traingen.compare.findings import Finding, FindingKind

KIND = FindingKind(
    id="TG-TEST-KIND", severity="error", title="a test", meaning="It means.", fix="Fix it.",
    example="x = 1",
)  # fmt: skip


def test_a_finding_says_what_was_measured_and_the_rest_as_its_kind_does():
    assert KIND.found("here: 1, not 2") == Finding(
        id="TG-TEST-KIND", severity="error", measured="here: 1, not 2", meaning="It means.",
        fix="Fix it.",
    )  # fmt: skip


@pytest.mark.parametrize("better", [{"fix": "Write 2."}, {"severity": "warning"}])
def test_a_finding_may_know_a_better_way_out_or_another_severity(better):
    finding = KIND.found("here", **better)
    ((name, value),) = better.items()
    assert getattr(finding, name) == value
    assert (finding.id, finding.meaning) == (KIND.id, KIND.meaning)
    assert KIND.found("there").fix == "Fix it."
