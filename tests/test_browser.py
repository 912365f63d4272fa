"""The explorers in a real JupyterLab and a real Chromium: typed into, moved by keyboard, looked at.

They are long tests; test_widgets.py does the same with the widgets alone.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import nbformat
import pytest
from helpers import CHROMIUM
from nbformat.v4 import new_code_cell, new_notebook

pytest.importorskip("playwright", reason="Playwright is not installed: pip install -e '.[dev]'")
from playwright.sync_api import Locator, Page, expect, sync_playwright

from abc_nb.common import paths

pytestmark = pytest.mark.long
SECONDS = 1000  # Playwright counts milliseconds
CELLS = [
    'import abc_nb\n\nabc_nb.explore_attention("addition-vanilla", "123+989")',
    'abc_nb.explore_calibration("addition-vanilla")',
    'from abc_nb.show.exhibits import scene\n\nscene("cone", 1120)',
]


@pytest.fixture(scope="module")
def lab(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A JupyterLab of its own on the loopback address, with one notebook: its URL."""
    folder = tmp_path_factory.mktemp("lab")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
    book = new_notebook(cells=[new_code_cell(source) for source in CELLS], metadata=kernel)
    for name in ("notebooks", "docs"):
        (folder / name).mkdir()
    nbformat.write(book, folder / "notebooks" / "explorers.ipynb")
    shutil.copy(paths.ROOT / "docs" / "index.html", folder / "docs")
    places = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    places |= {f"JUPYTERLAB_{kind}_DIR": str(folder / kind.lower()) for kind in ("SETTINGS", "WORKSPACES")}
    places["ABC_NB_RUNS"] = str(folder / "runs")  # the shipped results are all there is, as after an installation
    page_config = folder / "config" / "labconfig" / "page_config.json"
    page_config.parent.mkdir(parents=True)
    page_config.write_text('{"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": true}}')
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
    command += ["--ServerApp.ip=127.0.0.1", "--LabApp.extension_manager=readonly"]
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env={**os.environ, **places}, stdout=log, stderr=log)
    try:
        for _ in range(1200):  # two minutes
            if found := [*(folder / "runtime").glob("jpserver-*.json")]:
                break
            assert server.poll() is None, (folder / "lab.log").read_text()[-2000:]
            time.sleep(0.1)
        about = json.loads(found[0].read_text())
        yield f"{about['url']}lab/tree/notebooks/explorers.ipynb?token={about['token']}"
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture(scope="module")
def page(lab: str, chromium: str) -> Iterator[Page]:
    """The notebook, with all its cells run from the menu and an explorer in each."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM)
        opened = browser.new_page(viewport={"width": 1400, "height": 900})
        opened.set_default_timeout(30 * SECONDS)
        opened.goto(lab)
        opened.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        opened.get_by_role("menuitem", name="Run", exact=True).click()
        opened.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        opened.locator(".abc-count").wait_for(state="attached", timeout=120 * SECONDS)
        yield opened
        browser.close()


def cell(page: Page, index: int) -> Locator:
    found = page.locator(".jp-CodeCell").nth(index)
    found.locator(".jp-OutputArea-output").first.scroll_into_view_if_needed()
    return found


def picture(cell: Locator) -> str:
    """Where the browser has the first picture: another address for other bytes."""
    return str(cell.locator("img").first.get_attribute("src"))


def expect_redrawn(cell: Locator, before: str) -> None:
    expect(cell.locator("img").first).not_to_have_attribute("src", before)


def labelled(cell: Locator, label: str) -> Locator:
    """The slider with this label."""
    row = cell.locator(".widget-inline-hbox").filter(has=cell.page.get_by_text(label, exact=True))
    return row.get_by_role("slider")


def test_a_typed_problem_is_decoded_and_arrow_keys_step_through_it(page: Page) -> None:
    explorer = cell(page, 0)
    answer = explorer.locator(".abc-answer")
    expect(answer).to_have_text("123+989 = 1112 ✓ right")
    before, box = picture(explorer), explorer.locator("input[type=text]").first
    box.press("Control+a")
    box.press_sequentially("078114514+0241919810")
    box.press("Enter")
    expect(answer).to_contain_text("✗ wrong in")
    expect(answer).to_contain_text(f"right is {78114514 + 241919810}")
    expect_redrawn(explorer, before)
    before, last = picture(explorer), int(explorer.locator(".abc-step").inner_text().split()[1])
    labelled(explorer, "step").press("ArrowLeft")
    expect(explorer.locator(".abc-step")).to_contain_text(f"Step {last - 1} writes")
    expect_redrawn(explorer, before)


def test_the_threshold_slider_changes_lines_and_pictures_without_a_jump(page: Page) -> None:
    explorer = cell(page, 1)
    count = explorer.locator(".abc-count")
    before, shown, place = count.inner_text(), picture(explorer), explorer.bounding_box()
    for _ in range(10):
        labelled(explorer, "share").press("ArrowRight")
    expect(count).not_to_have_text(before)
    expect_redrawn(explorer, shown)
    after = explorer.bounding_box()
    assert after is not None and place is not None
    assert (after["width"], after["height"]) == (place["width"], place["height"])


def test_a_scene_of_the_page_lives_in_a_cell(page: Page) -> None:
    scene = cell(page, 2).frame_locator("iframe")
    shown = scene.locator("#cone-length-out")
    expect(shown).to_have_text("13 digits")
    scene.get_by_role("slider").press("ArrowRight")
    expect(shown).to_have_text("14 digits")
    expect(scene.locator("#type")).to_be_hidden()
    expect(cell(page, 2).locator("img")).to_have_count(0)
