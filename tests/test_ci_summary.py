from pathlib import Path
from textwrap import dedent

import pytest

from scripts.ci_summary import main

PASSED = '<testcase classname="tests.test_a" name="test_fine" />'
FAILED = '<testcase classname="tests.test_a" name="test_bad"><failure message="no" /></testcase>'
ERROR = '<testcase classname="tests.test_a" name="test_bad"><error message="no" /></testcase>'
SKIPPED = (
    '<testcase classname="tests.test_a" name="test_skip[x]"><skipped message="no" /></testcase>'
)


def summarize(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *cases: str, allowed: str = ""
) -> tuple[int, list[str]]:
    """Write the files CI would, run the script, and give back its code and what it printed."""
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    skips = tmp_path / "allowed-skips.txt"
    skips.write_text(dedent(allowed), encoding="utf-8")
    code = main(["--allowed-skips", str(skips), f"quick={report}"])
    return code, capsys.readouterr().out.splitlines()


def test_passing_suite_is_counted_and_accepted(tmp_path, capsys):
    code, lines = summarize(tmp_path, capsys, PASSED)
    assert code == 0
    assert lines == ["quick: 1 passed, 0 failed, 0 skipped", "1 passed, 0 failed, 0 skipped"]


@pytest.mark.parametrize("case", [FAILED, ERROR], ids=["failure", "error"])
def test_failed_test_fails_and_is_named(tmp_path, capsys, case):
    code, lines = summarize(tmp_path, capsys, PASSED, case)
    assert code == 1
    assert "quick: failed: tests.test_a::test_bad" in lines
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"


def test_failure_and_teardown_error_of_one_test_count_once(tmp_path, capsys):
    _, lines = summarize(tmp_path, capsys, PASSED, FAILED, ERROR)
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"


def test_skip_nobody_listed_fails(tmp_path, capsys):
    code, lines = summarize(tmp_path, capsys, PASSED, SKIPPED)
    assert code == 1
    assert "quick: skipped without being allowed: tests.test_a::test_skip[x]" in lines


@pytest.mark.parametrize(
    "pattern", ["tests.test_a::test_skip[x]", "tests.test_a::test_skip[*]", "tests.*::test_skip*"]
)
def test_listed_skip_is_accepted(tmp_path, capsys, pattern):
    code, lines = summarize(tmp_path, capsys, PASSED, SKIPPED, allowed=f"{pattern} — no such disk")
    assert code == 0
    assert lines[-1] == "1 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize("line", ["tests.test_a::*", "tests.test_a::* — ", " — because"])
def test_entry_without_test_or_reason_is_an_error(tmp_path, capsys, line):
    code, lines = summarize(tmp_path, capsys, PASSED, allowed=f"# skips\n\n{line}")
    assert code == 1
    assert lines[1].startswith("allowed-skips.txt:3: expected '<test> — <reason>'")


def test_suite_without_tests_fails(tmp_path, capsys):
    code, lines = summarize(tmp_path, capsys)
    assert code == 1
    assert "quick: no test ran" in lines


def test_suite_that_only_skipped_ran_no_test(tmp_path, capsys):
    code, lines = summarize(tmp_path, capsys, SKIPPED, allowed="*test_skip* — no such disk")
    assert code == 1
    assert "quick: no test ran" in lines


def test_missing_report_fails_but_other_suites_are_still_counted(tmp_path, capsys):
    (tmp_path / "quick.xml").write_text(f"<testsuite>{PASSED}</testsuite>")
    code = main(
        [
            *("--allowed-skips", str(tmp_path / "none.txt")),
            f"quick={tmp_path / 'quick.xml'}",
            f"slow={tmp_path / 'slow.xml'}",
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert "slow: no readable report: did the suite start?" in lines
    assert lines[-1] == "1 passed, 0 failed, 0 skipped"
