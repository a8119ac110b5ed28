"""A headless browser without network: what it shows, and what it complains about."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def opened(url: str, profile: Path, *, width: int = 1100) -> tuple[str, list[str]]:
    """The page as the browser understood it, and its complaints; every name resolves to nothing."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
         f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files",
         f"--window-size={width},900", "--virtual-time-budget=10000", "--dump-dom", url],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line or "Refused" in line]
