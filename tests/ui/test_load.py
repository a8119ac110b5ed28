"""What the page costs: processor time to the first page, and memory under a minute of requests."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ui._page import run_server, write_people

SECONDS, PER_SECOND = 60, 20


def processor_seconds(process: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_megabytes(process: int) -> float:
    """Memory of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no such line")


def test_the_first_page_takes_less_than_a_second_of_processor_time(tmp_path: Path) -> None:
    write_people(tmp_path / "people.csv", 100)
    with run_server(tmp_path) as server:
        server.visit()
        seconds = processor_seconds(server.process.pid)
        print(f"first page: {seconds:.2f} s of processor time")
        assert seconds < 1


@pytest.mark.slow
def test_a_minute_of_twenty_requests_a_second_leaves_memory_flat(tmp_path: Path) -> None:
    write_people(tmp_path / "people.csv")
    with run_server(tmp_path) as server:
        visitor = server.visit()
        draft = visitor.open_table(tmp_path / "people.csv")
        visitor.answer_columns(draft)
        visitor.review(draft)
        paths = ["/", f"{draft}/columns", f"{draft}/model", f"{draft}/budget", f"{draft}/review", "/ledger",
                 "/account", "/rashomon", "/static/page.js", "/static/page.css"]  # fmt: skip
        for path in (*paths, *(f"{draft}/plan?epsilon={0.1 + index / 100}" for index in range(100))):
            visitor.get(path)  # warm
        process, memory, delays = server.process.pid, [], []

        def ask(number: int) -> int:
            path = (
                paths[number % len(paths)]
                if number % 3
                else f"{draft}/plan?epsilon={0.1 + number % 100 / 100}"
            )
            start = time.monotonic()
            status = int(visitor.get(path).status_code)
            delays.append(time.monotonic() - start)
            return status

        memory.append(resident_megabytes(process))
        begin, answers = time.monotonic(), []
        with ThreadPoolExecutor(16) as pool:
            for number in range(SECONDS * PER_SECOND):
                time.sleep(max(0.0, begin + number / PER_SECOND - time.monotonic()))
                answers.append(pool.submit(ask, number))
                if number % (10 * PER_SECOND) == 10 * PER_SECOND - 1:
                    memory.append(resident_megabytes(process))
        statuses = {answer.result() for answer in answers}
        delays.sort()
        print(
            f"{len(answers)} requests in {time.monotonic() - begin:.1f} s, memory every 10 s "
            f"{[round(each, 1) for each in memory]} MB, median {1000 * delays[len(delays) // 2]:.0f} ms, "
            f"slowest {1000 * delays[-1]:.0f} ms"
        )
        assert statuses == {200}
        assert time.monotonic() - begin < SECONDS + 10
        assert memory[-1] < memory[1] + 8
