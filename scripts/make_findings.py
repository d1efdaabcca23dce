"""Write the reference page of all findings: `python scripts/make_findings.py`.

It is made from the catalog that `traingen findings` prints; a test holds the committed file to it.
"""

from collections.abc import Iterator
from pathlib import Path

from traingen.cli.findings import KINDS
from traingen.compare.findings import FindingKind

PAGE = "docs/reference/findings.md"
INTRODUCTION = """\
# Findings

What `traingen` can find, by id. An id is never used again for something else. Only an `error`
fails; a command may give a finding another severity where it knows more. In the terminal,
`traingen findings` prints the same list, `traingen findings ID` one of it, `--json` as JSON.

This page is made by `scripts/make_findings.py` from the code.

| id | severity | what was found |
| --- | --- | --- |"""


def render_page() -> str:
    """The text that is committed at `PAGE`."""
    lines = [INTRODUCTION]
    lines += [f"| [{k.id}](#{k.id.lower()}) | {k.severity} | {_plain(k.title)} |" for k in KINDS]
    for kind in KINDS:
        lines += ["", *_section(kind)]
    return "\n".join(lines) + "\n"


def _section(kind: FindingKind) -> Iterator[str]:
    yield f"## {kind.id}"
    yield ""
    yield f"{kind.severity}: {_plain(kind.title)}. {_plain(kind.meaning)}"
    yield ""
    yield f"What to do: {_plain(kind.fix)}"
    yield ""
    yield "For example:"
    yield ""
    yield f"    {kind.example}"


def _plain(text: str) -> str:
    """`text` as Markdown that shows it as it is."""
    return "".join(f"\\{letter}" if letter in r"\`*_[]<>|" else letter for letter in text)


def main() -> None:
    Path(PAGE).write_text(render_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
