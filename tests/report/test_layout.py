"""Labelled lines of at most 80 columns."""

from hypothesis import given
from hypothesis import strategies as st

from traingen.compare.findings import Finding
from traingen.report.layout import WIDTH, render_finding, shorten, wrap, wrap_each

FINDING = Finding(id="TG-A-B", severity="warning", measured="1", meaning="It means.", fix="Fix.")


def test_lines_go_on_below_the_text():
    lines = wrap("label           ", "word " * 30)
    assert lines[0].startswith("label           word word")
    assert lines[1].startswith(" " * 16 + "word")
    assert max(map(len, lines)) <= WIDTH == 80


def test_a_long_label_does_not_push_the_text_to_the_right():
    assert wrap("a label of thirty characters: ", "word " * 30)[1].startswith(" " * 16 + "word")


def test_one_label_serves_several_lines():
    assert list(wrap_each("label           ", ["one", "two"])) == [
        "label           one", "                two",
    ]  # fmt: skip
    assert list(wrap_each("label", [])) == []


def test_a_finding_is_a_block_of_labelled_lines():
    assert list(render_finding(FINDING)) == [
        "WARNING  TG-A-B", "  measured 1", "  meaning  It means.", "  fix      Fix.",
    ]  # fmt: skip


@given(st.text("ab -_.", max_size=200))
def test_nothing_is_wider_than_the_terminal(text):
    assert all(len(line) <= WIDTH for line in wrap("label           ", text))
    assert len(shorten(text)) <= WIDTH
    assert shorten(text) == text or shorten(text).endswith("…")
