"""Run tutorials as their reader would, and write what they print below each block.

Usage: python tools/tutorials.py [page ...]. All `python` and `console` blocks of a page run in order, in one folder and
one session. A `text` block right below one of them is what it printed. Pictures that a page shows from
images/tutorials are those that its code saved under that name. The tests run the same and compare: words exactly,
numbers nearly.
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
CLOSE = 0.1


def pages() -> list[Path]:
    """Every tutorial."""
    return sorted(FOLDER.glob("*.md"))


def pictures(text: str) -> list[str]:
    """Files that the page shows and its code saves."""
    return re.findall(r"images/tutorials/([\w.]+)\)", text)


def ran(text: str, folder: Path) -> list[str]:
    """What each block prints, in order; the working folder is `folder`."""
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
                    _commands(body)
            said = out.getvalue().replace(str(folder), "/...").rstrip()
            printed.append("\n".join(line.rstrip() for line in said.splitlines()))
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


def _commands(body: str) -> None:
    """`$ dplangevin ...` lines; one that is meant to fail says so: `# exit code 3`."""
    from dplangevin.cli.main import run

    for line in body.replace("\\\n", " ").splitlines():
        if not line.startswith("$ dplangevin "):
            raise SystemExit(f"not a command: {line}")
        words, _, code = line.partition(" # exit code ")
        found = run(shlex.split(words)[2:])
        if found != int(code or 0):
            raise SystemExit(f"exit code {found}: {line}")


def written(text: str, printed: list[str]) -> str:
    """The page with what its blocks printed."""
    answers = iter(printed)

    def block(found: re.Match[str]) -> str:
        said = next(answers)
        code = f"```{found[1]}\n{found[2]}```\n"
        return code + (f"\n```text\n{said}\n```\n" if said else "")

    return BLOCK.sub(block, text)


def differences(text: str, printed: list[str]) -> list[str]:
    """Where a page says something else than its code prints."""
    wrong, blocks = [], BLOCK.findall(text)
    if not any(said for _, _, said in blocks):  # a page that shows no output
        return []
    for (_, body, said), now in zip(blocks, printed, strict=True):
        if not alike(said.rstrip(), now):
            wrong.append(f"{body}\nsays\n{said}\nprints\n{now}")
    return wrong


def alike(first: str, second: str) -> bool:
    """Equal words, and numbers within a tenth of each other; hashes are not compared."""
    first, second = HASH.sub("HASH", first), HASH.sub("HASH", second)
    shape = [" ".join(NUMBER.sub("#", text).split()) for text in (first, second)]
    numbers = [[float(found.replace(",", "")) for found in NUMBER.findall(text)] for text in (first, second)]
    return shape[0] == shape[1] and all(
        math.isclose(a, b, rel_tol=CLOSE, abs_tol=0.02) for a, b in zip(*numbers, strict=True)
    )


def notebook(text: str) -> dict[str, object]:
    """The page as a Jupyter notebook, with what its blocks printed; commands run in the notebook's shell."""
    cells: list[dict[str, object]] = []

    def words(said: str) -> None:
        said = re.sub(r"!\[[^]]*\]\(\.\./images/(?!tutorials/)[^)]*\)\n*", "", said)
        said = said.replace(
            "](../images/tutorials/", "]("
        )  # the code saves these pictures beside the notebook
        said = re.sub(r"(?<!!)\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", said)  # pages that are not beside it
        if said.strip():
            cells.append({"cell_type": "markdown", "metadata": {}, "source": _lines(said.strip())})

    end = 0
    for found in BLOCK.finditer(text):
        words(text[end : found.start()])
        end = found.end()
        code = found[2] if found[1] == "python" else re.sub(r"^\$ ", "!", found[2], flags=re.MULTILINE)
        printed = [{"output_type": "stream", "name": "stdout", "text": _lines(found[3])}] if found[3] else []
        cells.append(
            {
                "cell_type": "code",
                "execution_count": None,
                "metadata": {},
                "outputs": printed,
                "source": _lines(code.strip()),
            }
        )
    words(text[end:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(wanted: list[str]) -> None:
    """Run and rewrite."""
    sys.path.insert(0, str(ROOT / "src"))
    for page in [Path(name).resolve() for name in wanted] or pages():
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(written(text, ran(text, Path(folder))), encoding="utf-8")
            for name in pictures(text):
                shutil.copy(Path(folder) / name, ROOT / "docs" / "images" / "tutorials" / name)
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
