"""A page to test: the real server in a process of its own, the same app without one, and a small table."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

TOKEN, PORT = "a-token-for-tests", 8123
ORIGIN = f"http://127.0.0.1:{PORT}"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


def write_people(path: Path, n: int = 1500, seed: int = 0) -> Path:
    """Write a table of people with a label that two of its columns predict."""
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 15, n).clip(18, 95).round()
    income = rng.lognormal(10, 0.6, n).round()
    job = rng.choice(["nurse", "clerk", "farmer", "teacher"], n, p=[0.4, 0.3, 0.2, 0.1])
    sex = rng.choice(["f", "m"], n)
    score = (age - 45) / 10 + 0.8 * (sex == "m") - 0.4
    sick = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
    lines = [f"{a:g},{i:g},{j},{s},{y}" for a, i, j, s, y in zip(age, income, job, sex, sick, strict=True)]
    path.write_text("\n".join(["age,income,job,sex,sick", *lines]) + "\n")
    return path


class Visitor:
    """A browser without a screen: it carries the cookie and the token of the forms."""

    def __init__(self, client: Any, origin: str, address: str) -> None:
        self.client, self.origin = client, origin
        start = self.get(address)
        assert start.status_code == 200, start.text
        self.form_token = re.search(r'name="form_token" value="(\w+)"', start.text)[1]

    def get(self, path: str) -> Any:
        """Open a page."""
        return self.client.get(path, follow_redirects=True)

    def post(self, path: str, /, **fields: str) -> Any:
        """Send a form of a page; a field a_b is named a-b where it has a number."""
        named = {re.sub(r"_(?=\d+$)", "-", name): value for name, value in fields.items()}
        return self.client.post(
            path,
            data={"form_token": self.form_token, **named},
            headers={"origin": self.origin},
            follow_redirects=True,
        )

    def open_table(self, path: Path, **fields: str) -> str:
        """Open a table; return the address of its draft."""
        answer = self.post("/draft", path=str(path), **fields)
        assert answer.status_code == 200, answer.text
        return str(httpx.URL(str(answer.url)).path).removesuffix("/columns")

    def answer_columns(self, draft: str, **changes: str) -> Any:
        """Say that the columns of the people are learned."""
        roles = {
            "role_0": "number",
            "role_1": "number",
            "role_2": "category",
            "role_3": "category",
            "role_4": "target",
        }
        return self.post(f"{draft}/columns", **{**roles, "rows": "count", **changes})

    def state_columns(self, draft: str, **changes: str) -> Any:
        """Say that the columns of the people have these ranges and lists."""
        ranges = {"low_0": "18", "high_0": "95", "low_1": "0", "high_1": "100000"}
        lists = {"listed_2": "nurse, clerk, farmer, teacher", "listed_3": "f, m"}
        return self.answer_columns(draft, **ranges, **lists, **changes)

    def review(
        self, draft: str, epsilon: str = "1", dataset: str = "", total: str = "6", **model: str
    ) -> Any:
        """Choose the model and the budget; return the summary."""
        answer = self.post(f"{draft}/model", **{"model": "logistic", "labels": "no, yes", **model})
        assert str(answer.url).endswith("/budget"), find_error(answer.text)
        budget = {"dataset": dataset, "new_name": "people", "new_epsilon": total, "new_delta": "1e-5"}
        answer = self.post(f"{draft}/budget", epsilon=epsilon, delta="1e-6", **budget)
        assert str(answer.url).endswith("/review"), find_error(answer.text)
        return answer

    def release(self, draft: str, summary: str) -> Any:
        """Press the button that charges."""
        digest = re.search(r'name="digest" value="(\w+)"', summary)[1]
        return self.post(f"{draft}/release", digest=digest)

    def wait_for_release(self, draft: str, seconds: float = 90) -> str:
        """Wait until a release no longer runs; return its state."""
        address = draft.replace("/draft/", "/release/") + "/state.json"
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            state = str(self.get(address).json()["state"])
            if state != "running":
                return state
            time.sleep(0.1)
        raise AssertionError("the release still runs")


def find_error(text: str) -> str:
    """Return the sentence of an error on a page; empty where there is none."""
    found = re.search(r'<p class="error"[^>]*>(.*?)</p>', text, re.S)
    return re.sub(r"<[^>]+>", "", found[1]).strip() if found else ""


class Server:
    """A server in a process of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        arguments = [sys.executable, "-m", "dplangevin.cli.main", "ui", "--no-browser"]
        self.process = subprocess.Popen(
            [*arguments, "--start", str(folder), "--folder", str(folder / "releases")],
            cwd=folder, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = self.process.stderr.readline()
        self.address = re.search(r"http://\S+", line)[0]
        self.origin = self.address.partition("/?")[0]

    def visit(self) -> Visitor:
        """Open the page."""
        client = httpx.Client(base_url=self.origin, timeout=60, trust_env=False)
        for _ in range(100):
            with contextlib.suppress(httpx.TransportError):
                client.get("/static/page.js")
                break
            time.sleep(0.05)
        return Visitor(client, self.origin, self.address)

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop the server."""
        self.process.send_signal(number)
        self.process.wait(20)
        self.process.stderr.close()


@contextlib.contextmanager
def run_server(folder: Path, **environment: str) -> Iterator[Server]:
    """Run a server until the block ends."""
    server = Server(folder, environment)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
