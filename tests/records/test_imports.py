"""The recording layer starts light."""

import subprocess
import sys


def test_importing_records_loads_no_heavy_library() -> None:
    code = (
        "import sys, traingen.records; "
        "print(sorted({'torch', 'lightning', 'numpy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
