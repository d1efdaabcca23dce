"""The kinds of findings about one recording, and that its judge is light."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from traingen.judge import KINDS
from traingen.judge.kinds import __file__ as source

TESTS = "\n".join(
    path.read_text(encoding="utf-8")
    for path in Path(__file__).parent.glob("test_*.py")
    if path.name != "test_kinds.py"
)


def test_every_kind_that_is_defined_is_listed_and_named_alike():
    defined = re.findall(r'id="(TG-[A-Z-]+)"', Path(source).read_text(encoding="utf-8"))
    assert defined == [kind.id for kind in KINDS]
    assert all(name.startswith("TG-RECORD-") for name in defined)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_every_kind_is_tried(kind):
    assert f'"{kind.id}"' in TESTS


def test_judging_loads_no_heavy_library():
    code = (
        "import sys, traingen.judge; "
        "print(sorted({'torch', 'lightning', 'numpy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
