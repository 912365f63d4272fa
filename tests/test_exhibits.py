"""What notebooks show: numbers, captions, and files that are saved with what is shown; the report on all of it."""

import re
from pathlib import Path

import pandas as pd
import pytest
from IPython.display import HTML, Image, Markdown

from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.show import exhibits, notebooks, pictures, titles
from abc_nb.show.exhibits import Exhibits
from audit import NOTEBOOKS, claims, ledger, report
from audit import exhibits as audited
from audit.results import Results

SHOW = Exhibits("quick")
FIGURES = paths.ROOT / "figures"


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, figures: Path) -> list[object]:
    """What is displayed, one after another; files go to `figures`."""
    found: list[object] = []
    monkeypatch.setattr(exhibits, "display", lambda *objects: found.extend(objects))
    return found


def test_the_number_follows_from_the_name() -> None:
    assert exhibits.numbered("figure-7-1-contexts", "All.") == "**Figure 7.1.** All."
    assert exhibits.numbered("table-a1-2-places", "All.") == "**Table A1.2.** All."
    assert exhibits.numbered("table-1", "All.") == "**Table 1 of the paper.** All."


def test_what_has_no_number_or_in_the_audit_no_caption_is_refused(shown: list[object]) -> None:
    with pytest.raises(InputError, match="no number follows from the name 'figure-7-none'"):
        SHOW.figure("figure-7-none", pictures.new_figure(1)[0], "All.")
    with pytest.raises(KeyError, match="figure-a5-9-none"):
        audited.Exhibits("a5_certificates", "quick").figure("figure-a5-9-none", pictures.new_figure(1)[0])
    assert shown == []


def test_a_figure_is_saved_and_shown_above_its_caption(shown: list[object], figures: Path) -> None:
    SHOW.figure("figure-7-1-reach", pictures.new_figure(1)[0], "How far.")
    picture, caption = shown
    assert isinstance(picture, Image) and isinstance(caption, Markdown)
    assert picture.data == (figures / "figure-7-1-reach.png").read_bytes()
    assert caption.data == "**Figure 7.1.** How far."


def test_a_table_is_saved_whole_and_shown_below_its_caption(shown: list[object], figures: Path) -> None:
    frame = pd.DataFrame({"task": ["addition"] * 2, "model": ["abc", "decoder-abc"], "accuracy": [1 / 3, 2000.0]})
    for display in (frame.set_index(["task", "model"]), frame[["model", "accuracy"]]):
        SHOW.table("table-7-2-far", frame, "How far.", display, "Of one run.")
        caption, table = shown[-2:]
        assert isinstance(caption, Markdown) and isinstance(table, HTML)
        assert caption.data == "**Table 7.2.** How far. Of one run."
        assert re.findall(r"<td>([^<]*)</td>", str(table.data))[-1] == "2,000" and "0.3333" in str(table.data)
        saved = pd.read_csv(figures / "table-7-2-far.csv")
        assert saved.columns.to_list() == ["task", "model", "accuracy", "setting"]
        assert saved.model.to_list() == ["abc", "decoder-abc"]
        for end in ("md", "tex"):  # for readers: with titles
            text = (figures / f"table-7-2-far.{end}").read_text(encoding="utf-8")
            assert (text.count("ABC"), text.count("ABC, decoder-only")) == (2, 1) and "Of one run." in text
            assert "abc" not in text and "index" not in text


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["vanilla", "decoder-vanilla"], ["Vanilla", "Vanilla, decoder-only"]),
        (["decoder-vanilla", "decoder-abs"], ["Vanilla", "One key per head"]),
        (["abs", "decoder-abs", "Ours"], ["ABS", "One key per head, decoder-only", "Ours"]),
        (["rope", "decoder-rope", "rope-widened"], ["RoPE", "RoPE, decoder-only", "RoPE, three widths"]),
        (["vanilla-widened", "nope-widened", "abc"], ["Vanilla", "NoPE", "ABC"]),
    ],
)
def test_titles_tell_models_apart_that_are_shown_together(names: list[str], shown: list[str]) -> None:
    assert titles.with_titles(pd.DataFrame({"model": names})).model.to_list() == shown


def test_figures_and_tables_are_those_that_notebooks_save_and_each_has_its_caption() -> None:
    named = re.compile(r'"((?:figure|table)-[\w-]+)"')
    course, audit = (
        {*named.findall("".join(path.read_text() for path in notebooks.in_reading_order(folder)).replace("\\", ""))}
        for folder in (paths.NOTEBOOKS, NOTEBOOKS)
    )
    files = [path.stem for pattern in ("figure-*.png", "table-*.csv") for path in FIGURES.glob(pattern)]
    assert course | audit == {*files} and audit == {*audited.captions()} and not course & audit


@pytest.mark.usefixtures("figures", "folders")
def test_what_the_ledger_holds_is_escaped() -> None:
    """Without runs the report is written all the same."""
    ledger.record([claims.Verdict("C02", "differs", "None.", "<script>alert(1)</script> $x$ | y")], "02", "smoke")
    text = report.write(Results("smoke", "runs", [0])).read_text()
    assert r"\<script>" in text and r"\$x\$ \| y" in text
