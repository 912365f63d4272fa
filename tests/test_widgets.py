"""The explorers' wiring: a control is set, and what the user sees has changed."""

import base64
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import ipywidgets
import pandas as pd
import pytest
import torch
from conftest import Folders, made_in

import abc_nb
from abc_nb.common.errors import InputError
from abc_nb.problems.tasks import Task
from abc_nb.runs import store
from abc_nb.show.explorers.explorer import Explorer
from abc_nb.show.explorers.painting import ColumnRule
from abc_nb.specs.spec import spec


@pytest.fixture(scope="session")
def trained(vanilla: store.Run) -> Path:
    """A folder of runs with two small models, to be copied."""
    return made_in(vanilla.folder.parent, spec("addition-nope", "smoke")).folder.parent


@pytest.fixture
def runs(trained: Path, folders: Folders) -> Path:
    shutil.copytree(trained, folders.runs)
    return folders.runs


def built(shown: ipywidgets.Widget) -> Explorer:
    assert isinstance(shown, Explorer), shown.value
    return shown


@pytest.fixture
def attention(runs: Path) -> Explorer:
    return built(abc_nb.explore_attention("addition-vanilla", "123+989", profile="smoke"))


@pytest.fixture
def bench(runs: Path) -> Explorer:
    return built(abc_nb.explore_calibration("addition-vanilla", profile="smoke"))


def changed(explorer: Explorer, **values: Any) -> tuple[bool, bool]:
    """Whether text and picture are others after controls were set."""
    before = (explorer.text.value, explorer.picture.value)
    for name, value in values.items():
        explorer.controls[name].value = value
    return explorer.text.value != before[0], explorer.picture.value != before[1]


@pytest.mark.parametrize(
    ("explore", "name", "options", "sentence"),
    [
        ("attention", "additoin-vanilla", {"profile": "smoke"}, "unknown experiment"),
        ("attention", "addition-abc", {"profile": "smoke"}, "run `abc-nb train addition-abc --profile smoke` first"),
        ("calibration", "addition-abc", {"profile": "smoke"}, "is not trained yet"),
        ("calibration", "addition-nope", {"profile": "smoke"}, "name a plain model such as addition"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(
    runs: Path, explore: str, name: str, options: dict[str, Any], sentence: str
) -> None:
    shown = getattr(abc_nb, f"explore_{explore}")(name, **options)
    assert isinstance(shown, ipywidgets.HTML) and sentence in unescape(shown.value)


def test_a_page_without_widgets_shows_a_picture_and_a_short_text(attention: Explorer) -> None:
    bundle = attention._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]) == attention.picture.value
    assert bundle["text/plain"] == "Explorer: run this cell in JupyterLab to use it"


def test_a_bad_problem_shows_its_sentence_until_a_good_one_comes(attention: Explorer) -> None:
    assert changed(attention, problem="<script>+1") == (False, False)
    assert changed(attention, head=2) == (False, False)
    assert "⚠ cannot read" in attention.message.value and "<script>" not in attention.message.value
    assert changed(attention, problem="1+1") == (True, True)
    assert "⚠" not in attention.message.value


def test_step_head_and_attention_show_another_map(attention: Explorer) -> None:
    assert changed(attention, step=2) == (True, True) and "Step 2 writes" in attention.text.value
    assert changed(attention, head=3 - attention.controls["head"].value) == (True, True)
    assert changed(attention, attention="self") == (True, True)


def test_a_threshold_changes_lines_and_a_length_the_bias(bench: Explorer) -> None:
    bench.controls["share"].value = 0.06
    assert changed(bench, share=0.6) == (True, True)
    assert changed(bench, digits=30) == (False, True)


def test_painted_cells_are_the_rule_that_is_trained_and_judged() -> None:
    """Distances of a sum's columns: -2 and -1 are the place above, 2 and 3 the place below."""
    distances, seen = torch.arange(-4, 6), list[list[int]]()

    def judge(rule: ColumnRule) -> pd.DataFrame:
        seen.append(distances[rule(distances)].tolist())
        if not seen[-1]:
            raise InputError("nothing is open: open a cell")
        return pd.DataFrame({60: [100.0]}, index=["your mask"])

    painting = abc_nb.explore_painting(Task("addition"), "31415+27182", judge)
    assert [cell.description for cell in painting.cells.values()] == [*"321741"]
    painting.start.click()
    assert "your mask" in painting.verdict.value and "100.0" in painting.verdict.value
    painting.cells[3].value, painting.cells[0].value = True, False
    painting.start.click()
    assert seen == [[0, 1], [1, 3]]
    assert [cell.button_style for cell in painting.cells.values()] == ["", "", "", "success", "", "success"]
    for cell in painting.cells.values():
        cell.value = False
    painting.start.click()
    assert painting.verdict.value.startswith("⚠ nothing is open") and not painting.start.disabled
