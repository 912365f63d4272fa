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

from abc_nb import experiments, reproduce
from abc_nb.analysis import claims, statistics
from abc_nb.analysis.results import Results
from abc_nb.cli import main
from abc_nb.common import paths
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs import runner
from abc_nb.show import captions
from abc_nb.show.report import content, exhibits, markdown
from abc_nb.show.report import page as report

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


# ---- the page ---------------------------------------------------------------------------------------


def test_the_only_picture_is_the_headline(written: Path, page: Page) -> None:
    assert page.pictures == [(written / f"{content.HEADLINE}.png").read_bytes()]


def test_every_claim_is_in_the_page_and_in_the_markdown(written: Path, page: Page) -> None:
    claimed = set(claims.paper_claims().id)
    assert claimed <= page.anchors
    text = (written / "REPORT.md").read_text()
    assert all(f"| {id} |" in text for id in claimed)


def test_the_report_is_short(written: Path) -> None:
    """Two pages, without the marks of tables."""
    assert len(re.findall(r"\w+", (written / "REPORT.md").read_text())) < 2400


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
    assert len(links) > 40
    assert [link for link in links if not (written / link).exists()] == []


def test_the_page_can_be_read_without_seeing_it(page: Page) -> None:
    assert page.all("html")[0]["lang"] == "en"
    assert any(each.get("name") == "viewport" for each in page.all("meta"))
    assert re.search(r"<title>[^<]+</title>", page.text)
    assert all(len(each["alt"]) > 10 for each in page.all("img"))
    assert all(each.get("scope") for each in page.all("th"))
    assert len(page.anchors) == sum("id" in attributes for _, attributes in page.tags)


def test_the_page_can_be_mailed(written: Path) -> None:
    assert (written / "report.html").stat().st_size < 1e6


def test_same_results_give_the_same_bytes(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_FIGURES", str(written))
    names = ("report.html", "REPORT.md", "runs.csv")
    before = [(written / name).read_bytes() for name in names]
    report.write(SHIPPED)
    assert [(written / name).read_bytes() for name in names] == before


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


# ---- what is not there ------------------------------------------------------------------------------


def test_without_the_headline_and_runs_the_report_is_written_all_the_same(folder: Path) -> None:
    (folder / "figure-04-lengths.png").write_bytes(PNG)
    page = Page(report.write(SMOKE).read_text())
    assert page.pictures == []
    assert set(claims.paper_claims().id) <= page.anchors


def test_what_the_ledger_holds_is_escaped(folder: Path) -> None:
    (folder / "figure-04-lengths.png").write_bytes(PNG)
    claims.record(
        [claims.Verdict("C02", "differs", "<script>alert(1)</script> $x$ | y", "0 of 1 runs agree")], "02", "smoke"
    )
    text = report.write(SMOKE).read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert r"\$x\$ \| y" in (folder / "REPORT.md").read_text()


@pytest.mark.parametrize(
    ("value", "text"), [(100.0, "100.0"), (99.97, "99.97"), (99.6, "99.6"), (0.02, "0.02"), (0.0, "0.0")]
)
def test_a_percentage_is_not_rounded_to_all_or_nothing(value: float, text: str) -> None:
    assert statistics.percent(value) == text


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
    (folder / "figure-0-1-headline.png").write_bytes(PNG)
    text = report.write(SMOKE).read_text()
    for fact in (run.manifest["device"], run.manifest["date"], f"torch {run.manifest['versions']['torch']}"):
        assert report.escape(fact) in text
    (row,) = pd.read_csv(folder / "runs.csv").to_dict("records")
    assert (row["experiment"], row["seed"], row["steps"]) == (tiny.name, 0, run.manifest["steps"])


def test_the_command_writes_the_report_and_says_where(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "figure-0-1-headline.png").write_bytes(PNG)
    assert main(["report", "--profile", "smoke", "--results", "runs", "--seeds", "0"]) == 0
    assert Path(capsys.readouterr().out.strip()) == folder / "report.html"
    assert (folder / "REPORT.md").exists()


def test_reproduce_ends_with_the_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save_one(notebook: Path, output: Path, parameters: object) -> None:
        (folder / "figure-0-1-headline.png").write_bytes(PNG)

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
