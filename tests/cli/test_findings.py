"""The catalog of findings, what is printed of it, and the page that is made from it."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

import traingen
from scripts.make_findings import PAGE, render_page
from scripts.make_findings import main as make_findings
from traingen.cli.findings import CATALOG, KINDS
from traingen.cli.main import main
from traingen.compare.findings import FindingKind

ROOT = Path(__file__).parents[2]
ID = re.compile(r"^TG-[A-Z]+(-[A-Z0-9]+)+$")
WRITTEN = re.compile(r'"(TG-[A-Z0-9-]+[A-Z0-9])"')  # an id as it stands in code


# ---- the catalog --------------------------------------------------------------------------------


def complaints(kind: FindingKind) -> list[str]:
    """What is wrong with how a kind is described."""
    texts = [kind.title, kind.meaning, kind.fix, kind.example]
    wrong = {
        "id": not ID.match(kind.id),
        "severity": kind.severity not in ("error", "warning", "info"),
        "empty": not all(text.strip() for text in texts),
        "spaces": any(text != text.strip() or "\n" in text for text in texts),
        "title": kind.title.endswith("."),
        "meaning": not re.match(r"[A-Z].*\.$", kind.meaning),
        "fix": not re.match(r"[A-Z].*\.$", kind.fix),
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_every_kind_is_described_in_sentences(kind):
    assert complaints(kind) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"id": "TG-SCHED"}, ["id"]),
        ({"id": "tg-sched-epoch"}, ["id"]),
        ({"severity": "fatal"}, ["severity"]),
        ({"example": " "}, ["empty", "spaces"]),
        ({"title": "An end."}, ["title"]),
        ({"meaning": "it means"}, ["meaning"]),
        ({"fix": "Mend it"}, ["fix"]),
    ],
)
def test_a_kind_that_is_not_is_noticed(change, complaint):
    assert complaints(FindingKind(**(asdict(KINDS[0]) | change))) == complaint


def test_no_two_kinds_share_an_id_or_a_title():
    assert len(CATALOG) == len(KINDS) == len({kind.title for kind in KINDS})
    assert all(kind.id == name for name, kind in CATALOG.items())


def ids_written_below(folder: Path) -> set[str]:
    sources = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    return {name for source in sources for name in WRITTEN.findall(source)}


def test_every_id_in_the_code_is_in_the_catalog():
    written = ids_written_below(Path(traingen.__file__).parent)
    assert "TG-SCHED-EPOCH" in written
    assert written <= set(CATALOG)


def test_an_id_outside_the_catalog_is_noticed(tmp_path):
    (tmp_path / "novel.py").write_text('Finding(id="TG-NOVEL-THING", severity="error")')
    assert ids_written_below(tmp_path) - set(CATALOG) == {"TG-NOVEL-THING"}


# ---- the command --------------------------------------------------------------------------------


def test_all_findings_are_listed(capsys):
    assert main(["findings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if re.match(r"(ERROR|WARNING|INFO)  TG-", line)]
    assert heads == [f"{kind.severity.upper()}  {kind.id}" for kind in KINDS]


def test_only_those_asked_for_are_shown_once_and_in_that_order(capsys):
    assert main(["findings", "TG-SCHED-STEP", "tg-sched-epoch", "TG-SCHED-STEP"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"TG-SCHED-\w+", out) == ["TG-SCHED-STEP", "TG-SCHED-EPOCH"]


@pytest.mark.parametrize("ids", [[], ["TG-LOCKSTEP-LR", "TG-SCHED-EPOCH"]], ids=["all", "two"])
def test_json_is_one_object_with_every_field(capsys, ids):
    assert main(["findings", "--json", *ids]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"findings": [asdict(CATALOG[name]) for name in ids or CATALOG]}
    assert set(found["findings"][0]) == {"id", "severity", "title", "meaning", "fix", "example"}


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("TG-SCHED-EPOC", "TG-SCHED-EPOCH"),
        ("tg-lockstep-gradient", "TG-LOCKSTEP-GRADIENTS"),
        ("EPOCH", "TG-SCHED-EPOCH"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"], ["TG-SCHED-STEP"]], ids=" ".join)
def test_an_unknown_id_ends_with_2_and_names_the_closest(capsys, name, closest, options):
    assert main(["findings", *options, name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("traingen: error: findings: no finding has the id")
    assert f"{name.upper()!r}, the closest is {closest}: " in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "name", ["", "?", "ÄÖÜ", "x" * 1000], ids=["empty", "?", "umlauts", "long"]
)
def test_whatever_is_asked_for_ends_with_one_line(capsys, name):
    assert main(["findings", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_reader_that_has_seen_enough_is_no_error():
    command = [sys.executable, "-m", "traingen", "findings"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()
    assert (process.returncode, complaint) == (0, b"")


# ---- the page -----------------------------------------------------------------------------------


def test_the_committed_page_is_made_from_the_code():
    committed = (ROOT / PAGE).read_text(encoding="utf-8")
    assert committed == render_page(), "run scripts/make_findings.py"


def test_the_page_has_a_section_for_every_finding():
    page = render_page()
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == list(CATALOG)
    assert all(f"    {kind.example}\n" in page for kind in KINDS)
    assert all(f"(#{name.lower()})" in page for name in CATALOG)


def test_the_script_writes_the_page(tmp_path, monkeypatch):
    (tmp_path / PAGE).parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    make_findings()
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == render_page()
