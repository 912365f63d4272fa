"""The report: all of a profile's figures, tables and claims, on one page that loads nothing, and as Markdown."""

from __future__ import annotations

import re
import shutil
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from conftest import Folders
from helpers import rows

from abc_nb import experiments, reproduce
from abc_nb.analysis import claims, statistics
from abc_nb.analysis.results import Results
from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs import runner
from abc_nb.show import captions, tables
from abc_nb.show.report import comparison, content, exhibits, markdown
from abc_nb.show.report import page as report
from abc_nb.show.report.comparison import Comparison, Plain

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (400).to_bytes(4, "big") + (300).to_bytes(4, "big") + b"the rest"
SHIPPED = Results("quick", "shipped", experiments.SEEDS)
SMOKE = Results("smoke", "runs", [0])


class Page(HTMLParser):
    """Every tag with its attributes, and the style sheet."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = text
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attributes}))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def anchors(self) -> set[str]:
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}

    @property
    def pictures(self) -> list[bytes]:
        return [
            b64decode(each["src"].removeprefix("data:image/png;base64,"), validate=True) for each in self.all("img")
        ]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project's figures, with its report."""
    folder = tmp_path_factory.mktemp("project") / "figures"
    shutil.copytree(paths.ROOT / "figures", folder, ignore=shutil.ignore_patterns("smoke", "report.html", "REPORT.md"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ABC_NB_FIGURES", str(folder))
        report.write(SHIPPED)
    return folder


@pytest.fixture(scope="module")
def page(written: Path) -> Page:
    return Page((written / "report.html").read_text())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: Folders) -> Path:
    """The smoke profile's folder, empty, as are runs and shipped results."""
    monkeypatch.setenv("ABC_NB_FIGURES", str(tmp_path / "figures"))
    (tmp_path / "figures" / "smoke").mkdir(parents=True)
    return tmp_path / "figures" / "smoke"


def saved(name: str, frame: pd.DataFrame, folder: Path) -> Comparison | Plain:
    """The table as the report reads it."""
    tables.save(frame, name, "smoke")
    return comparison.read(folder / f"{name}.csv")


# ---- the page ---------------------------------------------------------------------------------------


def test_every_figure_is_in_the_page_once_and_is_the_file(written: Path, page: Page) -> None:
    files = [path.read_bytes() for path in written.glob("figure-*.png")]
    assert sorted(page.pictures) == sorted(files)


def test_every_table_and_every_claim_is_in_the_page_and_in_the_markdown(written: Path, page: Page) -> None:
    names = {path.stem for path in written.glob("*.csv")} - {"claims"}
    claimed = set(claims.paper_claims().id)
    assert names | claimed <= page.anchors
    text = (written / "REPORT.md").read_text()
    assert all(f"({name}.csv)" in text for name in names)
    assert all(f"| {id} |" in text for id in claimed)


def test_the_headline_comes_first(page: Page) -> None:
    order = [attributes.get("id") for _, attributes in page.tags if attributes.get("id")]
    assert order[:3] == ["figure-25-beyond", "counts", "ledger"]


def test_the_page_loads_nothing_and_runs_nothing(page: Page) -> None:
    names = {name for name, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "video", "audio", "base"}
    assert all(value.startswith("data:") for _, each in page.tags for name, value in each.items() if name == "src")
    assert not any(name.startswith("on") or name == "srcset" for _, each in page.tags for name in each)
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_every_link_of_the_page_leads_somewhere(written: Path, page: Page) -> None:
    links = [each["href"] for each in page.all("a")]
    assert any(link.endswith("05_abc.ipynb") for link in links)
    for link in links:
        assert link[1:] in page.anchors if link.startswith("#") else (written / link).exists(), link


def test_every_link_of_the_markdown_leads_to_a_file(written: Path) -> None:
    links = re.findall(r"\]\(([^)]+)\)", (written / "REPORT.md").read_text())
    assert len(links) > 50
    assert [link for link in links if not (written / link).exists()] == []


def test_the_page_can_be_read_without_seeing_it(page: Page) -> None:
    assert page.all("html")[0]["lang"] == "en"
    assert any(each.get("name") == "viewport" for each in page.all("meta"))
    assert re.search(r"<title>[^<]+</title>", page.text)
    assert all(len(each["alt"]) > 10 for each in page.all("img"))
    assert all(each.get("scope") for each in page.all("th"))
    assert len(page.anchors) == sum("id" in attributes for _, attributes in page.tags)


def test_the_page_can_be_mailed(written: Path) -> None:
    assert (written / "report.html").stat().st_size < 8e6


def test_same_results_give_the_same_bytes(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(written))
    before = [(written / name).read_bytes() for name in ("report.html", "REPORT.md")]
    report.write(SHIPPED)
    assert [(written / name).read_bytes() for name in ("report.html", "REPORT.md")] == before


# ---- captions ---------------------------------------------------------------------------------------


def exhibited() -> list[exhibits.Exhibit]:
    return [each for chapter in exhibits.chapters() for each in chapter.exhibits]


def test_figures_and_tables_are_those_that_notebooks_save() -> None:
    folder = paths.ROOT / "figures"
    files = {path.stem for pattern in ("figure-*.png", "table-*.csv") for path in folder.glob(pattern)}
    assert {each.name for each in exhibited()} == files


def test_every_figure_and_table_has_a_caption_and_no_caption_is_left_over() -> None:
    assert [each.name for each in exhibited() if not each.caption] == []
    assert set(captions.known()) - {each.name for each in exhibited()} == {"benchmarks"}


def test_every_notebook_says_what_it_shows() -> None:
    assert [chapter.notebook.stem for chapter in exhibits.chapters() if not chapter.title or not chapter.intro] == []


def test_no_markdown_is_left_in_the_pages_captions() -> None:
    for each in exhibited():
        assert not re.search(r"[$`\\]|\*\*", str(report.inline(each.caption))), each.name


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("up to $2^{20}$", "up to 2<sup>20</sup>"),
        ("$w = 1$ and *more*", "<i>w</i> = 1 and <em>more</em>"),
        ("`a<b` & <b>", "<code>a&lt;b</code> &amp; &lt;b&gt;"),
        ("$i < j_n$", "<i>i</i> &lt; <i>j</i><sub><i>n</i></sub>"),
        ("2 * 3", "2 * 3"),
    ],
)
def test_captions_become_html_with_everything_else_escaped(text: str, html: str) -> None:
    assert str(report.inline(text)) == html


def test_a_figure_without_a_caption_is_shown_under_its_name(folder: Path) -> None:
    (folder / "figure-99-new.png").write_bytes(PNG)
    text = report.write(SMOKE).read_text()
    assert "<code>figure-99-new</code>" in text
    assert Page(text).pictures == [PNG]


# ---- marks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paper", "expected"), [(50.0, ""), (45.0, ""), (55.0, ""), (44.9, "▲"), (55.1, "▼"), (float("nan"), "")]
)
def test_mark_says_where_ours_lies(paper: float, expected: str) -> None:
    assert comparison.mark(paper, 45.0, 55.0) == expected


def test_a_table_beside_the_paper_is_marked_cell_by_cell(folder: Path) -> None:
    accuracy = {6: [1.0], 10: [0.5, 0.9, 0.7], 20: [0.213], 60: [0.0]}
    frame = tables.beside_paper(rows("RPE", accuracy), "table1")  # the paper: 100, 99.9, 21.3, none
    table = saved("table-1", frame, folder)
    assert isinstance(table, Comparison)
    ((task, ((model, cells),)),) = table.groups
    assert (task, model, table.lengths) == ("Addition", "RPE", (6, 10, 20, 60))
    assert [(each.paper, each.ours, each.mark) for each in cells if each] == [
        ("100", "100.0", ""),
        ("99.9", "70.0 (50.0–90.0)", "▼"),
        ("21.3", "21.3", ""),
        ("", "0.0", ""),
    ]
    page = Page(report.write(SMOKE).read_text())
    marks = [each for each in page.all("span") if each.get("class") == "mark"]
    assert [each["aria-label"] for each in marks] == ["lower than the paper"]
    assert "99.9 / 70.0 (50.0–90.0) ▼ |" in (folder / "REPORT.md").read_text()


def test_rows_of_two_regimes_stand_apart(folder: Path) -> None:
    frame = statistics.over_seeds(rows("Vanilla", {6: [1.0]}))
    table = saved("table-x", pd.concat([frame, frame.assign(regime="padded")]), folder)
    assert isinstance(table, Comparison)
    assert [model for model, _ in table.groups[0][1]] == ["Vanilla, tight", "Vanilla, padded"]


def test_rows_of_few_seeds_say_so(folder: Path) -> None:
    frame = pd.concat([rows("RPE", {6: [1.0, 0.5], 10: [0.0, 0.0]}), rows("RoPE", {6: [1.0], 10: [0.0]})])
    table = saved("table-x", statistics.over_seeds(frame), folder)
    assert isinstance(table, Comparison)
    assert [model for model, _ in table.groups[0][1]] == ["RPE, 2 seeds", "RoPE, 1 seed"]


def test_words_that_differ_from_the_papers_are_marked(folder: Path) -> None:
    frame = pd.DataFrame({"task": ["A", "B"], "it, paper": ["yes", "no"], "it, ours": ["yes", "yes"]})
    table = saved("table-x", frame, folder)
    assert isinstance(table, Plain)
    assert [row[2] for row in table.rows] == ["yes", "yes ≠"]
    assert table.note


@pytest.mark.parametrize(
    ("value", "text"), [(100.0, "100.0"), (99.97, "99.97"), (99.6, "99.6"), (0.02, "0.02"), (0.0, "0.0")]
)
def test_a_percentage_is_not_rounded_to_all_or_nothing(value: float, text: str) -> None:
    assert statistics.percent(value) == text


def test_tokens_that_look_like_numbers_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "table-x.csv"
    path.write_text("task,target,share\nA,0012,0.123456\nB,1 0,1600.0\n")
    table = comparison.read(path)
    assert isinstance(table, Plain)
    assert table.rows == (("A", "0012", "0.1235"), ("B", "1 0", "1600"))
    assert table.numeric == (False, False, True)


def test_what_a_table_holds_is_escaped(folder: Path) -> None:
    saved("table-x", pd.DataFrame({"<b>": ["<script>alert(1)</script>"], "a|b": ["$x$ | y"]}), folder)
    text = report.write(SMOKE).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert r"\$x\$ \| y" in (folder / "REPORT.md").read_text()


# ---- what is not there ------------------------------------------------------------------------------


def test_what_a_notebook_saves_and_is_not_there_is_named(folder: Path) -> None:
    (folder / "figure-13-tokens.png").write_bytes(PNG)
    page = report.write(SMOKE).read_text()
    sentences = re.findall(r"Not found in this profile: ([^<]+)\.</p>", page)
    missing = {name for sentence in sentences for name in sentence.split(", ")}
    assert missing == {each.name for each in exhibited()} - {"figure-13-tokens"}
    assert all(name in (folder / "REPORT.md").read_text() for name in missing)


def test_without_any_result_one_sentence_says_what_to_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--profile", "smoke"]) == 2
    assert re.fullmatch(r"abc-nb: [^\n]*`abc-nb reproduce --profile smoke`\n", capsys.readouterr().err)
    assert list(folder.iterdir()) == []


def test_a_profile_or_results_that_do_not_exist_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--profile", "fast"]) == 2
    assert main(["report", "--results", "elsewhere"]) == 2
    assert capsys.readouterr().err.count("choose one of") == 2


# ---- runs -------------------------------------------------------------------------------------------


def test_runs_are_listed_with_what_their_manifests_say(
    folder: Path, tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runner.ensure(tiny, 0)
    monkeypatch.setattr(experiments, "needed", lambda profile, everything=False: [tiny])
    (folder / "figure-13-tokens.png").write_bytes(PNG)
    text = report.write(SMOKE).read_text()
    for fact in (tiny.name, run.manifest["device"], run.manifest["date"], f"torch {run.manifest['versions']['torch']}"):
        assert report.escape(fact) in text


@pytest.mark.parametrize(
    ("tasks", "headings"),
    [
        (["Addition"], ("1 digit", "60 digits")),
        (["ListOps SM"], ("1 item", "60 items")),
        (["N x N", "ListOps, nested"], ("1 digit or item", "60 digits or items")),
    ],
)
def test_lengths_are_told_in_what_they_count(tasks: list[str], headings: tuple[str, ...]) -> None:
    frame = statistics.over_seeds(pd.concat([rows("ABC", {1: [1.0], 60: [0.5]}, task) for task in tasks]))
    assert comparison.comparison(frame).headings == headings


@pytest.mark.parametrize(("more", "told"), [([], "one seed"), ([0.5], "2 seeds"), (None, "1 to 2 seeds")])
def test_the_note_tells_how_many_seeds(more: list[float] | None, told: str) -> None:
    frame = statistics.over_seeds(rows("ABC", {1: [1.0, *([0.5] if more is None else more)], 60: [1.0, *(more or [])]}))
    assert comparison.note(frame).endswith(f"problems of each length, {told} a row.")


def test_runs_seed_by_seed_are_a_table_by_length(folder: Path) -> None:
    """A row a model and seed, in percent, not a row an evaluation."""
    table = saved("table-x", rows("ABC", {6: [1.0, 0.5], 60: [0.75, 0.25]}), folder)
    assert isinstance(table, comparison.Comparison)
    ((task, models),) = table.groups
    assert task == "Addition"
    shown = {model: [cell.ours for cell in cells if cell] for model, cells in models}
    assert shown == {"ABC, seed 0": ["100.0", "75.0"], "ABC, seed 1": ["50.0", "25.0"]}


@pytest.mark.parametrize(
    ("value", "shown"),
    [("inf", "never"), ("1.5e-06", "< 0.0001"), ("-1.5e-06", "> -0.0001"), ("0", "0"), ("0.0", "0"), ("1e-3", "0.001")],
)
def test_numbers_of_plain_tables_are_words_where_those_say_more(value: str, shown: str, folder: Path) -> None:
    (folder / "table-x.csv").write_text(f"first_step\n{value}\n")
    table = comparison.read(folder / "table-x.csv")
    assert isinstance(table, comparison.Plain)
    assert (table.head, table.rows) == (("first step",), ((shown,),))


@pytest.mark.parametrize("count", [comparison.FOLDED, comparison.FOLDED + 1])
def test_a_long_plain_table_is_opened_by_a_click(count: int) -> None:
    table = comparison.Plain(("one",), tuple((str(number),) for number in range(count)), (True,))
    shown = markdown.plain(table)
    assert [line for line in shown.splitlines() if line.startswith("|")][2:] == [f"| {n} |" for n in range(count)]
    folded = shown.startswith(f"<details><summary>{count} rows</summary>\n\n|") and shown.endswith("|\n\n</details>")
    assert folded == (count > comparison.FOLDED)


def test_the_command_writes_the_report_and_says_where(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "figure-13-tokens.png").write_bytes(PNG)
    assert main(["report", "--profile", "smoke", "--results", "runs", "--seeds", "0"]) == 0
    assert Path(capsys.readouterr().out.strip()) == folder / "report.html"
    assert (folder / "REPORT.md").exists()


def test_reproduce_ends_with_the_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save_one(notebook: Path, output: Path, parameters: object) -> None:
        (folder / "figure-13-tokens.png").write_bytes(PNG)

    monkeypatch.setattr(experiments, "needed", lambda profile, everything=False: [])
    monkeypatch.setattr(reproduce.sweep, "sweep", lambda jobs: [])
    monkeypatch.setattr(reproduce.certified, "certify_runs", lambda found: [])
    monkeypatch.setattr(reproduce.notebooks, "execute", save_one)
    assert reproduce.reproduce("smoke", [0]) == 0
    assert Page((folder / "report.html").read_text()).pictures == [PNG]


def test_the_report_that_comes_with_the_project_is_that_of_its_results() -> None:
    found = content.collect(Results("quick", "shipped", experiments.SEEDS))
    written = (paths.ROOT / "figures" / "REPORT.md").read_text()
    assert markdown.render(found) == written, "the results have changed since: run `abc-nb report`"
