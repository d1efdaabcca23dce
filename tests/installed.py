"""Entry points as an installation declares them, also where the tests run from a checkout.

Where traingen is installed (CI), its own metadata is used; elsewhere a distribution is made up that
declares what pyproject.toml does, so that nothing is written twice.
"""

import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]


def declared_entry_points() -> dict[str, dict[str, str]]:
    """Group -> name -> value, as pyproject.toml says."""
    points: dict[str, dict[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())[
        "project"
    ]["entry-points"]
    return points


def are_visible() -> bool:
    """Whether a distribution on `sys.path` declares all of them already."""
    return all(
        value in {point.value for point in metadata.entry_points(group=group)}
        for group, points in declared_entry_points().items()
        for value in points.values()
    )


def make_distribution(folder: Path) -> Path:
    """Write a distribution below `folder` that declares them; returns what belongs on the path."""
    info = folder / "site" / "traingen_test-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: traingen-test\nVersion: 0\n")
    lines = [
        line
        for group, points in declared_entry_points().items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return info.parent
