"""The documentation site builds without a warning, and a browser without network can read all of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs._blocks import ROOT
from docs._browser import CHROMIUM, opened

NARROW = 400
SAMPLE = (
    "index.html", "reference/cli.html", "reference/api/dplangevin.estimators.DPLogisticRegression.html",
    "benchmarks/ACCURACY.html", "theory/noisy_sgd.html", "tutorials/accountant.html", "support.html",
)  # fmt: skip
MEASURE = """<script>
const pages = PAGES;
let waiting = pages.length;
for (const page of pages) {
  const frame = document.createElement("iframe");
  frame.width = WIDTH; frame.height = 700; frame.src = page;
  frame.onload = () => {
    const wide = frame.contentDocument.documentElement.scrollWidth;
    const line = document.createElement("p");
    line.textContent = "width " + wide + " " + page;
    document.body.append(line);
  };
  document.body.append(frame);
}
</script>"""
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")


def build(root: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=root, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT, target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def too_wide(site: Path, pages: list[str], profile: Path) -> list[str]:
    """Pages that must be scrolled sideways when their window is NARROW."""
    measure = site / "measure.html"
    measure.write_text("<body>" + MEASURE.replace("PAGES", repr(pages)).replace("WIDTH", str(NARROW)))
    shown, complaints = opened(measure.as_uri(), profile)
    assert not complaints
    wide = {page: int(width) for width, page in re.findall(r"<p>width (\d+) (\S+)</p>", shown)}
    return [page for page in pages if wide[page] > NARROW]


def test_the_site(site: Path, tmp_path: Path) -> None:
    """One test, so that the site is built once; before each change `make docs` builds it, and a dead link fails."""
    page = (site / "reference/api/dplangevin.estimators.DPLogisticRegression.html").read_text(
        encoding="utf-8"
    )
    assert "stated bound on the norm of a row" in page
    assert "{shared}" not in page
    assert not re.search(r"<b><code>delta</code></b>[^.]*default:[^.]*1\.0", page)  # that is epsilon's
    commands = (site / "reference/cli.html").read_text(encoding="utf-8")
    assert all(f'id="dplangevin-{name}"' in commands for name in ("fit", "count", "ledger-show", "rashomon"))
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed here")
    shown, complaints = opened((site / "index.html").as_uri() + "?q=epsilon", tmp_path)
    assert not complaints
    found = re.search(r"md-search-result__meta\">\s*(\d+) matching", shown)
    assert found is not None
    assert int(found[1]) >= 10
    assert not too_wide(site, list(SAMPLE), tmp_path)


@needs_browser
@pytest.mark.slow
def test_every_page_is_readable_on_a_telephone(site: Path, tmp_path: Path) -> None:
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    pages = [page for page in pages if page not in ("404.html", "measure.html")]
    for start in range(0, len(pages), 12):
        assert not too_wide(site, pages[start : start + 12], tmp_path)


@needs_browser
@pytest.mark.slow
def test_a_wide_page_is_noticed(site: Path, tmp_path: Path) -> None:
    (site / "wide.html").write_text('<!DOCTYPE html><div style="width: 900px">wide</div>')
    assert too_wide(site, ["wide.html"], tmp_path) == ["wide.html"]
    (site / "wide.html").unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["[nowhere](nowhere.md)", "[no such heading](ledger.md#nothing)", "[gone](../examples/gone.py)"]
)
def test_a_dead_link_fails_the_build(text: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    kept = ("docs", "tools", "src", "benchmarks", "examples")
    shutil.copytree(ROOT, copy, ignore=lambda folder, names: [
        name for name in names if (Path(folder) == ROOT and Path(folder, name).is_dir() and name not in kept)
        or name == "__pycache__"
    ])  # fmt: skip
    page = copy / "docs" / "sharp_edges.md"
    page.write_text(page.read_text(encoding="utf-8") + f"\n{text}\n", encoding="utf-8")
    assert build(copy, tmp_path / "site").returncode != 0
