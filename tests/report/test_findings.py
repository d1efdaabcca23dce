"""Kinds of findings for a person at a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from traingen.cli.findings import KINDS
from traingen.compare.findings import FindingKind
from traingen.report.findings import WIDTH, render_kinds

KIND = FindingKind(
    id="TG-TEST-KIND", severity="warning", title="a test", meaning="It means. " * 20,
    fix="Fix it.", example="x = 1",
)  # fmt: skip


def test_a_kind_is_a_block_of_labelled_lines():
    lines = render_kinds([KIND]).splitlines()
    assert lines[:2] == ["WARNING  TG-TEST-KIND", "  title    a test"]
    assert lines[2].startswith("  meaning  It means. It means.")
    assert lines[3].startswith(" " * 11 + "It means.")
    assert lines[-2:] == ["  fix      Fix it.", "  example  x = 1"]


def test_blocks_stand_apart():
    assert render_kinds([KIND, KIND]) == "\n\n".join([render_kinds([KIND])] * 2)
    assert render_kinds([]) == ""


def test_all_that_is_known_of_every_kind_is_there_within_the_width():
    text = render_kinds(KINDS)
    assert max(map(len, text.splitlines())) <= WIDTH == 80
    flat = " ".join(text.split())
    for kind in KINDS:
        assert f"{kind.severity.upper()} {kind.id} title" in flat
        for part in (kind.title, kind.meaning, kind.fix, kind.example):
            assert " ".join(part.split()) in flat


@given(st.text("ab_- .", max_size=300))
def test_no_text_is_too_wide(text):
    kind = FindingKind(
        id="TG-TEST-KIND", severity="info", title=text, meaning=text, fix=text, example=text
    )
    assert max(map(len, render_kinds([kind]).splitlines())) <= WIDTH
