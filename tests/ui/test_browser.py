"""The whole path in a real browser, with a picture of each step: from a file to a released model with few clicks."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ui._page import CHROMIUM, DRIVER, Server, run_server, write_people

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="chromium and chromium-driver are not installed"
)
MAX_CLICKS = 15
PICTURES = os.environ.get("DPLANGEVIN_PICTURES")  # a folder that keeps the pictures


class Browser:
    """A browser of which every click is counted."""

    def __init__(self, profile: Path, pictures: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
        ):
            options.add_argument(flag)
        options.add_argument(f"--user-data-dir={profile}")
        # every name but this machine's resolves to nothing, and what the page asks for is logged
        options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver: Any = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        self.pictures, self.clicks = pictures, 0
        self.asked: list[str] = []

    def find(self, selector: str) -> Any:
        """The first element of a selector, once it is there."""
        return self.wait(lambda: self.driver.find_element("css selector", selector))

    def click(self, selector: str) -> None:
        """Click as a hand does: on what is visible."""
        element = self.find(selector)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        self.clicks += 1
        element.click()

    def wait(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        """Wait until a condition holds; meanwhile the page may change under it."""
        from selenium.common.exceptions import WebDriverException

        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(WebDriverException):
                if value := condition():
                    return value
            time.sleep(0.05)
        raise AssertionError(self.driver.page_source[:3000])

    def take_pictures(self, name: str) -> None:
        """Take pictures, wide and narrow, light and dark; nothing may be wider than the window."""
        for width in (1200, 400):
            metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            for scheme in ("light", "dark"):
                media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
                self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
                root = "document.documentElement"
                surplus = self.driver.execute_script(f"return {root}.scrollWidth - {root}.clientWidth")
                assert surplus <= 0, f"{name} is {surplus} pixels wider than a window of {width}"
                picture = self.driver.execute_cdp_cmd(
                    "Page.captureScreenshot", {"captureBeyondViewport": True}
                )
                content = base64.b64decode(picture["data"])
                assert len(content) > 5000
                (self.pictures / f"{name}-{width}-{scheme}.png").write_bytes(content)
        wide = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wide)

    def complaints(self) -> list[str]:
        """What the browser complained about."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that was asked for so far."""
        import json

        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"])
        return self.asked


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[tuple[Browser, Server, Path]]:
    """A browser at the start of a page."""
    write_people(tmp_path / "people.csv", 3000)
    (tmp_path / "archive").mkdir()
    pictures = Path(PICTURES) if PICTURES else tmp_path / "pictures"
    pictures.mkdir(exist_ok=True)
    with run_server(tmp_path) as server:
        server.visit()  # it answers now
        browser = Browser(tmp_path / "profile", pictures)
        try:
            browser.driver.get(server.address)
            yield browser, server, tmp_path
        finally:
            browser.driver.quit()


def test_the_path_from_a_file_to_a_model_with_a_learned_schema(shown: tuple[Browser, Server, Path]) -> None:
    browser, server, folder = shown
    driver = browser.driver
    assert "token" not in driver.current_url
    browser.take_pictures("1-start")
    browser.click("button.file")
    browser.click("input[name=role-2][value=category]")
    browser.click("input[name=role-3][value=category]")
    browser.click("input[name=role-4][value=target]")
    browser.click("[data-fill=number]")
    browser.click("input[name=rows][value=count]")
    browser.take_pictures("2-columns")
    browser.click("button.primary")
    browser.find("#labels").send_keys("no, yes")
    browser.take_pictures("3-model")
    browser.click("button.primary")
    before = browser.find("#fact-epsilon data").get_attribute("value")
    browser.find("#slider").send_keys("\ue012" * 6)  # the left arrow: the slider obeys the keyboard
    browser.wait(lambda: browser.find("#plan").get_attribute("aria-busy") == "false"
                 and browser.find("#fact-epsilon data").get_attribute("value") != before)  # fmt: skip
    assert float(browser.find("#epsilon").get_attribute("value")) == 0.5
    browser.take_pictures("4-budget")
    browser.click("button.primary")
    browser.find("form.release-form")
    browser.take_pictures("5-summary")
    ledger = folder / "releases" / "ledger.db"
    from dplangevin.ledger import Ledger

    budget = Ledger.open(f"sqlite:///{ledger}").dataset("people")
    assert budget.remaining().entries == 0
    browser.click("button.release")
    browser.wait(lambda: driver.find_elements("id", "progress") or driver.find_elements("id", "guarantee"))
    browser.wait(
        lambda: browser.take_pictures("6-running") or True
    )  # it renews itself when the release is done
    browser.wait(lambda: driver.find_elements("id", "guarantee"))
    browser.take_pictures("7-released")
    assert browser.clicks <= MAX_CLICKS, browser.clicks
    assert budget.remaining().entries == 1
    driver.back()
    driver.back()
    driver.refresh()
    browser.wait(lambda: driver.find_elements("id", "guarantee"))  # a released draft leads to its release
    assert budget.remaining().entries == 1
    report = browser.find("a[href$='report.html']").get_attribute("href")
    for name, address in {
        "8-ledger": "/ledger",
        "9-accountant": "/account?method=descent&n=10000&lipschitz=1&noise_std=0.02&step_size=1&smoothness=0.26"
        "&strong_convexity=0.01&n_steps=1000&delta=1e-6",
        "10-rashomon": "/rashomon",
        "11-report": report.removeprefix(server.origin),
        "12-start-again": "/",
    }.items():
        driver.get(server.origin + address)
        browser.take_pictures(name)
    assert not [text for text in browser.complaints() if "favicon" not in text]
    foreign = [
        url for url in browser.requests() if not url.startswith((server.origin, "data:", "chrome:", "about:"))
    ]
    assert foreign == []


def test_the_page_by_keyboard_and_for_screen_readers(shown: tuple[Browser, Server, Path]) -> None:
    """Everything that acts is reached by the tab key and has a name; a hostile header shows text."""
    browser, server, folder = shown
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    driver = browser.driver
    (folder / "hostile.csv").write_text(
        '<img src=x onerror="document.title=1">,<script>document.title=2</script>,\u202egnp.exe,' + "w" * 5000
        + ",income\n1,2,3,4,no\n", encoding="utf-8",
    )  # fmt: skip
    driver.get(server.origin)

    def press(*keys: str) -> None:
        ActionChains(driver).send_keys(*keys).perform()

    def press_tab_until(condition: Callable[[Any], bool], limit: int = 60) -> Any:
        for _ in range(limit):
            press(Keys.TAB)
            if condition(element := driver.switch_to.active_element):
                return element
        raise AssertionError("the tab key does not reach it")

    press(Keys.TAB)
    assert driver.switch_to.active_element.text == "Skip to the content"
    press_tab_until(lambda element: "people.csv" in (element.text or ""))
    press(Keys.ENTER)
    browser.wait(lambda: "columns" in driver.current_url)
    press_tab_until(lambda element: element.get_attribute("data-fill") == "number")
    press(Keys.SPACE)
    press_tab_until(lambda element: element.get_attribute("name") == "role-4")
    press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)  # number, category, to predict
    assert driver.switch_to.active_element.get_attribute("value") == "target"
    press_tab_until(lambda element: element.get_attribute("name") == "rows")
    press(Keys.SPACE)
    press_tab_until(lambda element: element.tag_name == "button")
    press(Keys.ENTER)
    browser.wait(lambda: driver.current_url.endswith("/model"))
    press_tab_until(lambda element: element.get_attribute("name") == "labels")
    press("no, yes")
    press_tab_until(lambda element: element.tag_name == "button")
    press(Keys.ENTER)
    browser.wait(lambda: driver.current_url.endswith("/budget"))
    addresses = [driver.current_url, server.origin + "/ledger", server.origin + "/account", server.origin]
    for address in addresses:
        driver.get(address)
        nameless = driver.execute_script(NAMELESS)
        assert nameless == [], address
        assert len(driver.find_elements("tag name", "h1")) == 1
    driver.get(server.origin)
    browser.find("#typed").send_keys(str(folder / "hostile.csv"), Keys.ENTER)
    browser.wait(lambda: "columns" in driver.current_url)
    browser.take_pictures("13-hostile")
    assert driver.title.startswith("Columns")
    legends = [each.text for each in driver.find_elements("css selector", "fieldset.column legend")]
    assert legends[0] == '<img src=x onerror="document.title=1">'
    assert legends[1] == "<script>document.title=2</script>"
    assert legends[2] == "⟨U+202E⟩gnp.exe"
    assert legends[3].endswith("(5000 characters)")
    assert not driver.find_elements("css selector", "main img, main script")


# Fields and buttons without a name for a screen reader.
NAMELESS = """
return [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a, progress")]
  .filter((each) => !(each.labels && [...each.labels].some((label) => label.textContent.trim()))
    && !each.getAttribute("aria-label") && !each.textContent.trim() && !each.closest("[aria-hidden]"))
  .map((each) => each.outerHTML.slice(0, 100));
"""
