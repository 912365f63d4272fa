"""The page docs/index.html in a real Chromium, offline: what it computes, against Python's integers and the package."""

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from helpers import CHROMIUM

import abc_nb
from abc_nb.model.eight_bits import round_weights
from abc_nb.show.exhibits import scene
from abc_nb.training.evaluation import exact_match, greedy
from audit.smallest_adder import contexts

pytest.importorskip("playwright", reason="Playwright is not installed: pip install -e '.[dev]'")
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).parents[1]
PAGE, SOURCE = ROOT / "docs" / "index.html", ROOT / "docs" / "page"
PATIENT = 120_000  # milliseconds: a busy machine takes its time
EDGE = END = 10


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    """The page, opened once; whatever the tests do, nothing may stand on its console."""
    context = browser.new_context(offline=True, reduced_motion="reduce", viewport={"width": 1280, "height": 900})
    opened, said = context.new_page(), list[str]()
    opened.set_default_timeout(PATIENT)
    expect.set_options(timeout=PATIENT)
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: said.append(request.url) if request.url[:4] not in ("file", "data") else None)
    opened.goto(PAGE.as_uri())
    yield opened
    assert [line for line in said if not line.startswith("blob:")] == []


def digits(number: int, places: int) -> list[int]:
    """The answer's tokens: digits from the units up, and the end."""
    return [int(digit) for digit in reversed(str(number).zfill(places))] + [END]


# ---- the file


def test_the_page_is_one_small_file_that_holds_its_sources() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(text.encode()) <= 600_000
    assert not re.search(r"""<(?!a )[^>]*(src|href)=["']https?:""", text)  # a link is loaded only by who follows it
    sources = [path for path in SOURCE.rglob("*") if path.suffix in (".js", ".css", ".html")]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources) <= 1200
    for path in sources:
        if path.suffix != ".html":
            assert path.read_text(encoding="utf-8") in text, f"{path.name} has changed: run make page"
    for name in ("hero", "plain", "abc", "draw", "cone", "break", "table"):  # seen before a script has run
        assert re.search(rf'id="{name}-picture"[^>]*><svg', text), name


# ---- what is computed


def test_a_thousand_sums_get_the_right_tokens(page: Page) -> None:
    rng = random.Random(1)
    lengths = [1, 1000, *(round(10 ** (3 * rng.random() ** 5)) for _ in range(998))]  # most are short
    sums = [(rng.randrange(10**length), rng.randrange(10**length)) for length in lengths]
    said = page.evaluate(
        "sums => sums.map(text => models.abc.answer(readSum(text, 7)).answer)", [f"{a}+{b}" for a, b in sums]
    )
    yours = page.evaluate(
        "sums => sums.map(text => wiresAnswer(adder.model, adder.cells, readSum(text, 7)))",
        [f"{a}+{b}" for a, b in sums],
    )
    right = [digits(a + b, max(7, len(str(max(a, b))) + 1)) for a, b in sums]
    assert said == right
    assert yours == right
    run = abc_nb.load("addition-abc", seed=0)
    model, sampler = run.model(), run.spec.sampler
    batches = [sampler.typed_batch(f"{a}+{b}") for a, b in sums]
    by_width = sorted(batches, key=lambda batch: batch.layout.width)
    for _, group in groupby(by_width, key=lambda batch: batch.layout.width):
        some = [*group]
        source, target = (torch.cat([getattr(batch, name) for batch in some]) for name in ("source", "target"))
        assert exact_match(model, replace(some[0], source=source, target=target)).all()
    for (a, b), tokens in zip(sums[::100], said[::100], strict=True):
        assert int(abc_nb.answer("addition-abc", f"{a}+{b}")) == int("".join(map(str, reversed(tokens[:-1]))))


def test_the_plain_model_writes_the_packages_tokens_also_where_it_is_wrong(page: Page) -> None:
    rng = random.Random(2)
    texts = [f"{rng.randrange(10**n)}+{rng.randrange(10**n)}" for n in [*range(1, 13)] * 3]
    texts += ["314159+271828", "0314159+0271828"]
    said = page.evaluate("texts => texts.map(text => models.plain.answer(readSum(text, 7)).answer)", texts)
    run = abc_nb.load("addition-vanilla", seed=0)
    model = run.model()
    round_weights(model)
    model.double()
    for text, tokens in zip(texts, said, strict=True):
        batch = run.spec.sampler.typed_batch(text)
        expected = greedy(model, batch.source, batch.layout, run.spec.task.token("$"))[0].tolist()
        end = run.spec.task.token("&")
        expected = expected[: expected.index(end) + 1] if end in expected else expected
        assert tokens == [END if token == end else token for token in expected], text


def test_abcs_contexts_agree_with_the_shipped_certificate(page: Page) -> None:
    page.locator("#map").scroll_into_view_if_needed()
    page.wait_for_function("Cone.result")
    expect(page.locator("#map-verdict")).to_contain_text("30,302 contexts tried")
    expect(page.locator("#map-verdict")).to_contain_text("Right for every sum of every length")
    tried = page.evaluate("({...Cone.result, block: Cone.table.size})")
    (certificate,) = abc_nb.load("addition-abc", seed=0).certificates
    assert certificate is not None
    assert (tried["count"], tried["wrong"], tried["block"]) == (certificate["contexts"], 0, certificate["contexts"])
    assert tried["margin"] == pytest.approx(certificate["margin"], abs=1e-4)  # the certificate's is of float32


# ---- lines, training, proof


def seen(cells: list[list[int]], a: list[int], b: list[int], i: int) -> tuple[list[int], int]:
    """What lines see at place i of a sum, and the right token there, by Python's integers."""
    value = sum((x + y) * 10**k for k, (x, y) in enumerate(zip(a, b, strict=True)))
    answer, rows = digits(value, len(a)), (a, b, digits(value, len(a)))
    tokens = [rows[row][i - back] if 0 <= i - back < len(a) else EDGE for row, back in cells]
    return tokens, answer[i]


def whole_margins(model: dict[str, Any], contexts: np.ndarray) -> np.ndarray:
    """By how much the right token leads in each context, in whole multiples of the unit of logits (n,).

    Every number is whole and no sum reaches 2^53, so that float64 rounds nothing.
    """
    shape, unit = model["shape"], model["unit"]
    depth, inner = shape["D"], shape["F"]
    sizes = {"T": (shape["heads"], shape["tokens"], depth), "U": (inner, depth), "u": (inner,)}
    sizes |= {"W": (depth, inner), "O": (shape["classes"], depth), "o": (shape["classes"],)}
    parts, at = {}, 0
    for name, size in sizes.items():
        part = np.array(model["weights"][at : at + int(np.prod(size))]) / unit[name]
        assert np.array_equal(part, np.rint(part)), f"{name} is not whole"
        assert name in "uo" or abs(part).max() <= 127, f"{name} has more than 8 bits"
        parts[name], at = part.reshape(size), at + part.size
    finer = round(1 / (unit["U"] * unit["W"]))  # units of W z in one of x

    def logits(x: np.ndarray, U: np.ndarray, u: np.ndarray, W: np.ndarray, O: np.ndarray, o: np.ndarray) -> np.ndarray:
        all_logits: np.ndarray = o + (x * finer + np.maximum(u + x @ U.T, 0) @ W.T) @ O.T
        return all_logits

    largest = {name: abs(part) for name, part in parts.items()}
    vectors = parts.pop("T")
    assert logits(largest.pop("T").max(1).sum(0), **largest).max() < 2**53
    margins = []
    for some in np.array_split(contexts, len(contexts) // 20_000 + 1):
        of_tokens = logits(np.sum([vectors[head][some[:, head]] for head in range(shape["heads"])], 0), **parts)
        rows, right = np.arange(len(some)), some[:, -1]
        of_right = of_tokens[rows, right]
        of_tokens[rows, right] = -np.inf
        margins.append(of_right - of_tokens.max(1))
    return np.concatenate(margins)


MODEL = "(({{unit, weights}}) => ({{unit, weights: [...weights], shape: adder.model.shape}}))({0})"


def test_a_model_trained_in_the_page_is_proven_by_whole_numbers_too(page: Page) -> None:
    page.get_by_role("button", name="by hand").click()
    page.locator("#train").click()
    expect(page.locator("#proof")).to_contain_text("The shortest sum")  # it pauses where it passes tests of six digits
    page.locator("#stop").click()  # go on
    expect(page.locator("#proof")).to_contain_text("Right for every sum of every length")
    result, model = page.evaluate(f"[adder.result, {MODEL.format('{...adder.result, weights: adder.weights}')}]")
    margins = whole_margins(model, contexts(True).numpy())
    assert result["count"] == len(margins) == 20_102
    assert result["wrong"] == 0 == (margins <= 0).sum()
    assert result["margin"] == margins.min() * model["unit"]["o"]
    assert margins.max() < result["largest"] < 2**53
    expect(page.locator("#yours-verdict")).to_contain_text("right")


@pytest.mark.parametrize(
    "cells",
    [
        [[0, 0], [1, 0], [0, 1], [1, 1], [2, 1]],
        [[0, 0], [1, 0], [0, 1], [1, 1]],
        [[0, -1], [1, 0], [2, 2]],
        [[1, 3], [0, 0]],
    ],
)
def test_the_contexts_of_lines_are_those_that_sums_have(page: Page, cells: list[list[int]]) -> None:
    """None is missing in random sums, and each one found stands in the sum that is built for it."""
    script = """cells => {
        const {all} = allContexts(cells), step = Math.ceil(all.length / 2000);
        const built = all.filter((_, n) => n % step === 0).map(one => {
            const {a, b, i} = holding(cells, one);
            return [a, b, i, [...one.seen], one.right];
        });
        return [all.map(({seen, right}) => [...seen, right].join()), built];
    }"""
    listed, built = page.evaluate(script, cells)
    all_listed = set(listed)
    assert len(all_listed) == len(listed)
    for a, b, i, tokens, right in built:
        assert seen(cells, a, b, i) == (tokens, right)
    rng = random.Random(3)
    for _ in range(3000):
        places = rng.randrange(2, 9)
        a, b = ([rng.choice([0, 4, 5, 9, rng.randrange(10)]) for _ in range(places - 1)] + [0] for _ in range(2))
        for i in range(places + 1):
            tokens, right = seen(cells, a, b, i)
            assert ",".join(map(str, [*tokens, right])) in all_listed


@pytest.mark.parametrize("name", ["too few", "one place off", "carries hidden"])
def test_lines_that_cannot_do_are_refused_by_two_sums_that_look_alike(page: Page, name: str) -> None:
    page.get_by_role("button", name=name).click()
    expect(page.locator("#contexts")).to_contain_text("No training can help here")
    expect(page.locator("#twins figure")).to_have_count(2)
    cells, twins, all_seen, count = page.evaluate(
        "[Draw.cells, Draw.contexts.twins, Draw.contexts.all.map(({seen}) => seen.join()), Draw.contexts.distinct]"
    )
    assert len(set(all_seen)) == count < len(all_seen)
    (first, right), (second, other) = (seen(cells, twin["a"], twin["b"], twin["i"]) for twin in twins)
    assert first == second and set(first) != {EDGE}
    assert right != other


def test_lines_with_too_many_contexts_are_not_trained(page: Page) -> None:
    page.get_by_role("button", name="by hand").click()
    for _ in range(2):
        page.locator("#add").click()
    expect(page.locator("#contexts")).to_contain_text("finitely many, but too many for a page")
    assert page.locator("#draw-picture .handle").count() == 7 and page.locator("#train").is_disabled()
    page.get_by_role("button", name="by hand").click()
    assert page.locator("#train").is_enabled()


def test_the_shortest_wrong_sum_is_got_wrong_and_typed_into_the_first_scene(page: Page) -> None:
    page.get_by_role("button", name="carries hidden").click()
    page.locator("#train").click()
    expect(page.locator("#proof")).to_contain_text("The shortest sum")
    result = page.evaluate("adder.result")
    a, b = map(int, result["sum"]["text"].split("+"))
    assert result["answer"] != digits(a + b, result["sum"]["places"])
    lengths = "tried(adder.model, Draw.contexts.all).wrong.map((context) => holding(adder.cells, context).text.length)"
    assert len(result["sum"]["text"]) == min(page.evaluate(lengths))
    assert page.locator("#sum").input_value() == result["sum"]["text"]
    expect(page.locator("#yours-verdict")).to_contain_text("wrong")
    expect(page.locator("#abc-verdict")).to_contain_text(f"right: {a + b}")
    page.get_by_role("button", name="by hand").click()
    expect(page.locator("#yours")).to_be_hidden()  # the page's model again


def test_a_broken_model_errs_in_the_shown_sum_and_practice_brings_the_proof_back(page: Page) -> None:
    page.reload()
    expect(page.locator("#broken")).to_contain_text("wrong")
    page.locator("#level").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("Break.wanted === null && Break.now.weights")
    now = page.evaluate("Break.now")
    a, b = map(int, now["sum"]["text"].split("+"))
    assert now["wrong"] > 0
    assert now["answer"] != digits(a + b, now["sum"]["places"])
    page.locator("#practise").click()
    expect(page.locator("#broken")).to_contain_text("Right for every sum of every length")
    expect(page.locator("#break-said")).to_contain_text(f"After practice it writes {a + b}")
    model = page.evaluate(MODEL.format("Break.now"))
    assert (whole_margins(model, contexts(True).numpy()) > 0).all()


def test_what_is_wrong_at_a_pause_is_practised_until_it_is_proven(page: Page) -> None:
    page.get_by_role("button", name="by hand").click()
    expect(page.locator("#drill")).to_be_disabled()
    page.locator("#train").click()
    expect(page.locator("#proof")).to_contain_text("Stopped after")  # where sums of six digits are first all right
    page.locator("#drill").click()
    proof = page.locator("#proof")
    expect(proof).to_contain_text("Right for every sum of every length")
    expect(proof).to_contain_text("Each context occurs in a sum of numbers of at most 3 digits")
    model = page.evaluate(MODEL.format("{...adder.result, weights: adder.weights}"))
    assert (whole_margins(model, contexts(True).numpy()) > 0).all()
    expect(page.locator("#drill")).to_be_disabled()
    page.locator("#add").click()
    assert page.evaluate("new Set(Draw.cells.map(String)).size === Draw.cells.length"), (
        "a new head has a cell of its own"
    )


def test_stopped_training_tries_all_contexts_offers_practice_where_it_can_help_and_goes_on(page: Page) -> None:
    for name, tried, disabled in (
        ("by hand", "20,102 contexts", False),
        ("too few", "2,102 pairs", True),
    ):
        page.get_by_role("button", name=name).click()
        page.locator("#train").click()
        page.wait_for_function("Draw.history.length > 0")
        page.locator("#stop").click()
        expect(page.locator("#proof")).to_contain_text(re.compile(f"Stopped after .*All {tried} tried"))
        now = page.evaluate("({ wrong: Break.now.wrong, sum: Break.now.sum.text, said: written(Break.now.answer) })")
        assert now["wrong"] > 0 and int("0" + now["said"]) != sum(map(int, now["sum"].split("+")))
        assert page.locator("#practise").is_disabled() == disabled
    steps = page.evaluate("Draw.history.length")
    expect(page.locator("#stop")).to_have_text("Go on")
    page.locator("#stop").click()
    page.wait_for_function("count => Draw.history.length > count", arg=steps)
    page.locator("#stop").click()
    expect(page.locator("#stop")).to_have_text("Go on")
    history = [row[0] for row in page.evaluate("Draw.history")]
    assert history == sorted(set(history))


# ---- products


def test_products_are_right_in_every_context(page: Page) -> None:
    """All contexts by whole numbers; the page has the same numbers in some of them, and begins to try them all."""
    rng = random.Random(4)
    pairs = [[rng.randrange(10 ** rng.randrange(1, 41)), rng.randrange(10 ** rng.randrange(1, 41))] for _ in range(10)]
    script = """pairs => pairs.map(pair => {
        const [a, b] = pair.map(text => [...text].reverse().map(Number));
        const table = productTable(a, b, four => product.says(four));
        return [productOf(table), table.end === DONE];
    })"""
    said = page.evaluate(script, [[str(a), str(b)] for a, b in pairs])
    assert said == [[str(a * b), True] for a, b in pairs]
    model = page.evaluate("({shape: product.shape, unit: product.unit, weights: [...product.weights]})")
    (digit, seen), blank = (np.arange(count) for count in (10, 101)), np.array([100])
    shapes = [(digit, digit, seen, seen), (blank, digit, blank, seen[:-1]), (digit, blank, seen, blank)]
    grids = [np.stack(np.meshgrid(*shape, indexing="ij"), -1).reshape(-1, 4) for shape in shapes]
    a, b, above, before = (every := np.concatenate(grids)).T
    right = np.where(b == 100, 100, a % 100 * b + above % 100 % 10 + before % 100 // 10)
    margins = whole_margins(model, np.column_stack([every, right]))
    assert len(margins) == 1_022_110 and margins.min() > 0
    some = slice(0, None, 997)
    leads = "contexts => contexts.map(seen => (product.forward(seen), product.margin(cellOf(seen))))"
    assert page.evaluate(leads, every[some].tolist()) == (margins[some] * model["unit"]["o"]).tolist()
    page.locator("#try-product").click()
    expect(page.locator("#product-proof")).to_contain_text(re.compile(r"\d contexts tried in .*none wrong", re.DOTALL))
    page.reload()


def test_the_cells_of_tables_have_listed_contexts_alone(page: Page) -> None:
    script = """pairs => {
        const code = four => four.reduce((sum, token) => sum * 101 + token, 0);
        const listed = new Set();
        for (const {seen} of productContexts()) listed.add(code(seen));
        const met = pairs.flatMap(pair => productTable(...pair, cellOf).seen);
        return [listed.size, met.length, met.filter(four => !listed.has(code(four))).length];
    }"""
    rng = random.Random(6)
    pairs = [
        [[rng.choice([0, 1, 9, rng.randrange(10)]) for _ in range(rng.randrange(1, 9))] for _ in "ab"]
        for _ in range(300)
    ]
    size, met, missing = page.evaluate(script, pairs)
    assert size == 1_022_110
    assert met > 5000
    assert missing == 0


# ---- a reader's hands


def test_typed_sums_are_answered_and_bad_ones_are_refused(page: Page) -> None:
    box = page.locator("#sum")
    sums = {"314159+271828": "right: 585987", "0314159+0271828": "wrong: 413418", "7 + 5": "right: 12"}
    for text, plain in sums.items():
        box.fill(text)
        box.press("Enter")
        expect(page.locator("#plain-verdict")).to_have_text(plain)
        expect(page.locator("#abc-verdict")).to_contain_text("right: ")
    box.fill("7-5")
    box.press("Enter")
    expect(page.locator("#sum-error")).to_contain_text("Two numbers")
    page.locator("#first").fill("999999")
    page.locator("#first").press("Enter")
    expect(page.locator("#table-result")).to_contain_text(f"999999 × 314 = {999999 * 314}")


def test_everything_moves_with_the_keyboard(page: Page) -> None:
    page.get_by_role("button", name="by hand").click()
    page.locator('[data-head="0"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("Draw.cells[0]") == [1, 1]
    assert page.evaluate("document.activeElement.dataset.head") == "0"
    place = page.evaluate("Cone.i")
    page.locator("#cone-picture").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("Cone.i") == place + 1
    page.locator("#table-picture").focus()
    row, column = page.evaluate("Table.at")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("Table.at") == [row, column + 1]


def test_a_line_is_dragged_to_another_cell(page: Page) -> None:
    page.get_by_role("button", name="by hand").click()
    knob = page.locator('[data-head="0"] .knob')
    knob.scroll_into_view_if_needed()
    at = knob.bounding_box()
    assert at is not None
    page.mouse.move(at["x"] + 4, at["y"] + 4)
    page.mouse.down()
    page.mouse.move(at["x"] - 70, at["y"] + 4, steps=3)
    page.mouse.up()
    row, back = page.evaluate("Draw.cells[0]")
    assert row == 0
    assert back in (-1, -2)


def test_it_fits_a_telephone(browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 800}, reduced_motion="reduce")
    page.goto(PAGE.as_uri())
    page.evaluate("Type.show(piAndE(60)); Cone.show(piAndE(60), 30)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    box, asked = (page.locator(f"#cone-picture{inner}").bounding_box() for inner in ("", " rect.asked"))
    assert box is not None
    assert asked is not None
    assert box["x"] <= asked["x"] <= box["x"] + box["width"], "the picture is not scrolled to the place that is asked"
    page.close()


def test_a_frame_shows_the_scene_that_it_is_named_after(browser: Browser, tmp_path: Path) -> None:
    """In JupyterLab, whose frames may run scripts and nothing else; without scripts there is a picture."""
    frame = (
        scene("draw", 1080)
        .data.replace("../docs/index.html", PAGE.as_uri())
        .replace("<iframe", "<iframe sandbox=allow-scripts")
    )
    (tmp_path / "notebook.html").write_text(frame)
    page = browser.new_page(reduced_motion="reduce")
    page.goto((tmp_path / "notebook.html").as_uri())
    shown = page.frame_locator("iframe")
    assert [part.is_visible() for part in shown.locator("header, section, footer").all()] == [0, 0, 1, 0, 0, 0, 0]
    shown.locator("#train").click()
    expect(shown.locator("#chart-text")).to_contain_text(re.compile(r"Step \d{1,3}\."))
    shown.locator("#stop").click()
    expect(shown.locator("#proof")).to_contain_text("Stopped after")
    expect(page.locator("img")).to_have_count(0)
    page.close()
    still = browser.new_page(java_script_enabled=False)
    still.goto((tmp_path / "notebook.html").as_uri())
    expect(still.locator("img")).to_be_visible()
    still.close()


# ---- the site


def test_every_link_of_the_site_leads_to_a_file_of_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SOURCE / "website.py", tmp_path], check=True, capture_output=True)
    pages = [*tmp_path.rglob("*.html")]
    names = {path.name for path in pages}
    assert {"index.html", *(f"{path.stem}.html" for path in (ROOT / "notebooks").glob("*.ipynb"))} <= names
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    ids = {path: {name for _, name in re.findall(r"""\sid=(["'])(.*?)\1""", text)} for path, text in texts.items()}
    for path, text in texts.items():
        for _, link in re.findall(r"""<(?:a|img|iframe)\b[^>]*?\s(?:href|src)=(["'])(.*?)\1""", text):
            target, _, fragment = link.partition("#")
            if re.match(r"\w+:", link):
                continue
            linked = (path.parent / target).resolve() if target else path
            assert linked.is_file(), f"{path.name} links to {link}"
            if fragment and linked in ids:
                assert {fragment, unquote(fragment)} & ids[linked], f"{path.name} links to {link}"
