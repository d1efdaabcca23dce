"""Say what CI's test suites ran, and refuse skips nobody accounted for.

    python scripts/ci_summary.py --allowed-skips .ci/allowed-skips.txt NAME=JUNIT.xml ...

Standard library only: it also has to run when setting up the environment failed.
"""

import argparse
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

SEPARATOR = " — "


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The outcome of every test of one suite; `None` where it left no readable report."""

    name: str
    outcomes: dict[str, str] | None  # test id -> "passed", "failed" or "skipped"

    def tests(self, outcome: str) -> list[str]:
        """The ids of the tests with this outcome."""
        return [test for test, found in (self.outcomes or {}).items() if found == outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedSkip:
    """A test, or a glob over test ids, that may be skipped, and why."""

    pattern: str
    reason: str

    def covers(self, test: str) -> bool:
        """Whether this entry allows `test` to be skipped."""
        # Square brackets are the parameters of a test here, never a set of characters.
        return fnmatchcase(test, self.pattern.replace("[", "[[]"))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--allowed-skips", type=Path, required=True, metavar="FILE")
    parser.add_argument("suites", nargs="+", metavar="NAME=JUNIT.xml")
    args = parser.parse_args(argv)

    suites = [load_suite(*argument.split("=", 1)) for argument in args.suites]
    allowed, problems = load_allowed_skips(args.allowed_skips)
    problems += check_suites(suites, allowed)

    print(render_summary(suites, problems))
    return 1 if problems else 0


def load_suite(name: str, path: str) -> Suite:
    """Read a JUnit report as pytest writes it."""
    try:
        cases = ET.parse(path).iter("testcase")
    except (OSError, ET.ParseError):
        return Suite(name=name, outcomes=None)
    outcomes: dict[str, str] = {}
    for case in cases:
        test = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        # A test that fails and then breaks in teardown has two entries: the worse one counts.
        if outcomes.get(test) != "failed":
            outcomes[test] = outcome_of(case)
    return Suite(name=name, outcomes=outcomes)


def outcome_of(case: ET.Element) -> str:
    """What became of one test. An error in set-up is a failure, an expected failure a skip."""
    tags = {child.tag for child in case}
    if tags & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in tags else "passed"


def load_allowed_skips(path: Path) -> tuple[list[AllowedSkip], list[str]]:
    """Read the accepted skips, and say which lines are no entry. No file means no skips."""
    entries: list[AllowedSkip] = []
    problems: list[str] = []
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = (part.strip() for part in line.partition(SEPARATOR))
        if pattern and reason:
            entries.append(AllowedSkip(pattern=pattern, reason=reason))
        else:
            problems.append(f"{path.name}:{number}: expected '<test>{SEPARATOR}<reason>': {line!r}")
    return entries, problems


def check_suites(suites: Sequence[Suite], allowed: Sequence[AllowedSkip]) -> list[str]:
    """Everything about the suites that must make CI fail, one line each."""
    problems: list[str] = []
    for suite in suites:
        if suite.outcomes is None:
            problems.append(f"{suite.name}: no readable report: did the suite start?")
        elif not suite.tests("passed") and not suite.tests("failed"):
            problems.append(f"{suite.name}: no test ran")
        problems += [f"{suite.name}: failed: {test}" for test in suite.tests("failed")]
        problems += [
            f"{suite.name}: skipped without being allowed: {test}"
            for test in suite.tests("skipped")
            if not any(entry.covers(test) for entry in allowed)
        ]
    return problems


def render_summary(suites: Sequence[Suite], problems: Sequence[str]) -> str:
    """The counts per suite, the problems, and last the counts over all suites."""
    counts = [f"{suite.name}: {render_counts([suite])}" for suite in suites]
    return "\n".join([*counts, *problems, render_counts(suites)])


def render_counts(suites: Sequence[Suite]) -> str:
    """`N passed, N failed, N skipped` over `suites`."""
    return ", ".join(
        f"{sum(len(suite.tests(outcome)) for suite in suites)} {outcome}"
        for outcome in ("passed", "failed", "skipped")
    )


if __name__ == "__main__":
    sys.exit(main())
