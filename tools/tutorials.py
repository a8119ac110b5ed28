"""Run the tutorials as a reader would, and write what they print below each block.

Usage: python tools/tutorials.py [page ...]. All `python` and `console` blocks of a page run in order, in one folder and
one session. A `text` block right below one of them is its output. Pictures that a page shows from images/tutorials are
those that its code saved under that name. The tests run the same code and compare: words exactly, numbers
approximately.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
HASH = re.compile(r"\b(?=[a-z]*\d)[0-9a-f]{12,}\b")
RELATIVE_TOLERANCE = 0.1


def pages() -> list[Path]:
    """Return the files of all tutorials."""
    return sorted(FOLDER.glob("*.md"))


def pictures(text: str) -> list[str]:
    """Return the names of the pictures that the page shows and its code saves."""
    return re.findall(r"images/tutorials/([\w.]+)\)", text)


def run_blocks(text: str, folder: Path) -> list[str]:
    """Run the blocks of a page in `folder`, and return what each of them prints."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed = []
    with _in_folder(folder):
        for language, body, _ in BLOCK.findall(text):
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if language == "python":
                    exec(compile(body, "tutorial", "exec"), names)
                else:
                    _run_commands(body)
            output = out.getvalue().replace(str(folder), "/...").rstrip()
            printed.append("\n".join(line.rstrip() for line in output.splitlines()))
    return printed


@contextlib.contextmanager
def _in_folder(folder: Path):  # type: ignore[no-untyped-def]
    before, width = Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = "88"
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width


def _run_commands(body: str) -> None:
    """Run `$ dplangevin ...` lines; one that is meant to fail ends with `# exit code 3`."""
    from dplangevin.cli.main import run_command_line

    for line in body.replace("\\\n", " ").splitlines():
        if not line.startswith("$ dplangevin "):
            raise SystemExit(f"not a command: {line}")
        command, _, expected_code = line.partition(" # exit code ")
        code = run_command_line(shlex.split(command)[2:])
        if code != int(expected_code or 0):
            raise SystemExit(f"exit code {code}: {line}")


def insert_outputs(text: str, printed: list[str]) -> str:
    """Return the page with what its blocks printed."""
    outputs = iter(printed)

    def render_block(match: re.Match[str]) -> str:
        output = next(outputs)
        code = f"```{match[1]}\n{match[2]}```\n"
        return code + (f"\n```text\n{output}\n```\n" if output else "")

    return BLOCK.sub(render_block, text)


def differences(text: str, printed: list[str]) -> list[str]:
    """Return the blocks whose output in the page differs from what they print."""
    result, blocks = [], BLOCK.findall(text)
    if not any(shown for _, _, shown in blocks):  # a page that shows no output
        return []
    for (_, body, shown), output in zip(blocks, printed, strict=True):
        if not have_same_text(shown.rstrip(), output):
            result.append(f"{body}\nshows\n{shown}\nprints\n{output}")
    return result


def have_same_text(first: str, second: str) -> bool:
    """Return whether two outputs have equal words, and numbers within a tenth; hashes are not compared."""
    first, second = HASH.sub("HASH", first), HASH.sub("HASH", second)
    shape = [" ".join(NUMBER.sub("#", text).split()) for text in (first, second)]
    numbers = [
        [float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (first, second)
    ]
    return shape[0] == shape[1] and all(
        math.isclose(a, b, rel_tol=RELATIVE_TOLERANCE, abs_tol=0.02) for a, b in zip(*numbers, strict=True)
    )


def notebook(text: str) -> dict[str, object]:
    """Return the page as a Jupyter notebook with its outputs; commands run in the notebook's shell."""
    cells: list[dict[str, object]] = []

    def add_prose(prose: str) -> None:
        prose = re.sub(r"!\[[^]]*\]\(\.\./images/(?!tutorials/)[^)]*\)\n*", "", prose)
        prose = prose.replace(
            "](../images/tutorials/", "]("
        )  # the code saves these pictures next to the notebook
        prose = re.sub(
            r"(?<!!)\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", prose
        )  # pages that the notebook lacks
        if prose.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": _lines(prose.strip())})

    end = 0
    for match in BLOCK.finditer(text):
        add_prose(text[end : match.start()])
        end = match.end()
        code = match[2] if match[1] == "python" else re.sub(r"^\$ ", "!", match[2], flags=re.MULTILINE)
        printed = [{"output_type": "stream", "name": "stdout", "text": _lines(match[3])}] if match[3] else []
        cells.append(
            {
                "cell_type": "code",
                "execution_count": None,
                "metadata": {},
                "outputs": printed,
                "source": _lines(code.strip()),
            }
        )
    add_prose(text[end:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(names: list[str]) -> None:
    """Run the named pages, or all of them, and rewrite their outputs."""
    sys.path.insert(0, str(ROOT / "src"))
    for page in [Path(name).resolve() for name in names] or pages():
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(insert_outputs(text, run_blocks(text, Path(folder))), encoding="utf-8")
            for name in pictures(text):
                shutil.copy(Path(folder) / name, ROOT / "docs" / "images" / "tutorials" / name)
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
