"""Hooks of mkdocs: pages from elsewhere in the repository, generated references, and links between them.

A link in a Markdown file is written for the repository, where people read the file on a code host. The hooks resolve
it there and rewrite it for the site, so that one text serves both; a broken link fails the build.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = {"tutorials": "Start", "theory": "Theory", "benchmarks": "Benchmarks"}
PROJECT = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
_FENCED = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_config(config: Any) -> Any:
    """Add the pages of the Python reference to the navigation, and every page that is not in it yet."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]  # this file is loaded by its path
    from reference import api_navigation

    config.nav = _insert_api_pages(config.nav, api_navigation())
    named = set(_pages(config.nav))
    paths = [(path, ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    paths += [(path, ROOT) for path in (ROOT / "benchmarks").glob("*.md")]
    for path, root in sorted(paths):
        page = path.relative_to(root).as_posix()
        if page not in named:  # under its own title, at the end of the section that its folder belongs to
            section = SECTIONS.get(posixpath.dirname(page), "How-to")
            next(entry[section] for entry in config.nav if section in entry).append(page)
    return config


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for entry in (nav.values() if isinstance(nav, dict) else nav) for page in _pages(entry)]


def _insert_api_pages(nav: Any, pages: list[Any]) -> Any:
    if isinstance(nav, list):
        return [_insert_api_pages(entry, pages) for entry in nav]
    if isinstance(nav, dict):
        return {title: _insert_api_pages(entry, pages) for title, entry in nav.items()}
    return pages if nav == "reference/api/" else nav


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File
    from reference import api_pages, command_line

    texts: dict[str, str | bytes] = {"index.md": _front(), "reference/cli.md": command_line(), **api_pages()}
    for name in PROJECT:
        if (ROOT / name).is_file():
            texts[name] = (ROOT / name).read_text(encoding="utf-8")
    texts["LICENSE.md"] = f"# Licence\n\n```text\n{(ROOT / 'LICENSE').read_text(encoding='utf-8')}\n```\n"
    for path in sorted((ROOT / "benchmarks").glob("*.md")):
        texts[f"benchmarks/{path.name}"] = path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "benchmarks").glob("**/*.svg")):
        texts[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    texts |= _examples() | _notebooks() | {"tutorials/index.md": _gallery()}
    for uri, content in texts.items():
        files.append(File.generated(config, uri, content=content))
    return files


def _front() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return "---\nhide:\n  - navigation\n---\n" + text


def _examples() -> dict[str, str | bytes]:
    pages: dict[str, str | bytes] = {}
    entries = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        title = code.split('"""')[1].strip().splitlines()[0].rstrip(".:")
        heading = path.stem.replace("_", " ").capitalize()
        pages[f"examples/{path.stem}.md"] = (
            f"# {heading}\n\n`python examples/{path.name}`\n\n```python\n{code}```\n"
        )
        entries.append(f"- [{heading}]({path.name}): {title}")
    pages["examples/index.md"] = (
        "# Examples\n\nScripts that run unchanged, in seconds.\n\n" + "\n".join(entries) + "\n"
    )
    return pages


def _notebooks() -> dict[str, str | bytes]:
    """Return every tutorial as a Jupyter notebook for download."""
    from tutorials import notebook, pages

    return {
        f"tutorials/{path.stem}.ipynb": json.dumps(notebook(path.read_text(encoding="utf-8")), indent=1)
        for path in pages()
    }


def _gallery() -> str:
    """Return the page of all tutorials with their first sentence, their picture and their notebook."""
    from tutorials import pages

    cards = []
    for path in pages():
        text = path.read_text(encoding="utf-8")
        title, _, rest = text.removeprefix("# ").partition("\n\n")
        sentence = re.split(r"(?<=\.)\s", rest, maxsplit=1)[0].replace("\n", " ")
        picture = re.search(r"^!\[.*\]\(.*\)$", text, re.MULTILINE)
        shown = f"\n\n    {picture[0]}" if picture else ""
        links = f"[Read]({path.name}) · [notebook]({path.stem}.ipynb){{ download }}"
        cards.append(f"-   **{title}**{shown}\n\n    {sentence}\n\n    {links}\n")
    head = "# Gallery\n\nEvery tutorial runs as it stands; its notebook is for download.\n\n"
    return head + '<div class="grid cards" markdown>\n\n' + "\n".join(cards) + "\n</div>\n"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links between files of the repository as links between pages; add the notebook link to tutorials."""
    here = page.file.src_uri
    if here.startswith("tutorials/") and here != "tutorials/index.md":
        download_link = f"\\1\n\n[Download as a notebook]({Path(here).stem}.ipynb){{ .md-button download }}\n"
        markdown = re.sub(r"\A(# .*)$", download_link, markdown, count=1, flags=re.MULTILINE)
    parts = _FENCED.split(markdown)
    parts[::2] = [
        _LINK.sub(lambda match: match[1] + translate_link(match[2], here), text) for text in parts[::2]
    ]
    return "".join(parts)


def translate_link(target: str, page: str) -> str:
    """Return the site's link for a link that is valid in the repository."""
    folder = posixpath.dirname(repository_path(page))
    target_page = site_page(posixpath.normpath(posixpath.join(folder, target)))
    return posixpath.relpath(target_page, posixpath.dirname(page) or ".")


def repository_path(page: str) -> str:
    """Return the path of a page's text in the repository."""
    if page == "index.md":
        return "README.md"
    outside = page in (*PROJECT, "LICENSE.md") or page.startswith(("benchmarks/", "examples/"))
    return page if outside else f"docs/{page}"


def site_page(path: str) -> str:
    """Return the page that shows a file of the repository."""
    special_pages = {"README.md": "index.md", "LICENSE": "LICENSE.md", "examples": "examples/index.md"}
    if path in special_pages:
        return special_pages[path]
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    return path.removeprefix("docs/")


def on_post_build(config: Any) -> None:
    """Check that no page loads a script, style or image from another host."""
    outside = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//[^\"'> ]+")
    for folder, _, names in os.walk(config.site_dir):
        for name in names:
            if name.endswith(".html"):
                text = Path(folder, name).read_text(encoding="utf-8")
                tags = [tag for tag in outside.findall(text) if 'rel="canonical"' not in tag]
                if tags:
                    raise SystemExit(f"{name} would load {tags[0]} from the network")
