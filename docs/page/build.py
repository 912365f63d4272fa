"""Writes docs/index.html, one file without a network: template, style, scripts, and shipped weights in 8 bits.

Beside it stand cone.gif, a moving picture for the README, and scenes/, with pictures of what notebooks show in frames,
for viewers that leave these empty.

python docs/page/build.py          writes the page
python docs/page/build.py --train adder product
                                   trains the page's one-layer models first, into weights/: seconds, minutes

Chromium draws the pictures that are seen before a script has run, and trains the adder: with the page's scripts.
"""

import argparse
import base64
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

FOLDER = Path(__file__).parent
SCRIPTS = ("helpers", "sums", "wires", "training", "contexts", "decoder", "products", "worker")  # those of the worker
VIEWS = ("picture", "type", "draw", "cone", "break", "table", "start")  # those that draw
MODELS = {"plain": "addition-vanilla", "abc": "addition-abc"}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
ARGUMENTS += ["--disable-sync", "--no-first-run"]
SHOWN = ("type", "draw", "cone")  # scenes of notebooks
MOST = 600_000  # bytes


def decoder(name: str) -> dict[str, Any]:
    """A shipped model for the page; all that the page wants of the package is here."""
    import abc_nb
    from abc_nb.model.eight_bits import split

    model = abc_nb.load(name, seed=0).model()
    config = model.config
    lines = [
        [line.attention, line.layer, line.head, line.direction, line.span, line.offset, line.value]
        for line in getattr(config.bias, "lines", ())
    ]
    size = {"width": config.width, "heads": config.heads, "layers": config.decoder_layers}
    size |= {"inner": config.feed_forward, "vocabulary": model.head.out_features}
    tensors = {key: [text_of(part.numpy().tobytes()) for part in split(x)] for key, x in model.state_dict().items()}
    return {"tensors": tensors, "lines": lines or None, "size": size}


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def one_layer(name: str) -> dict[str, Any]:
    """A model of the page, as `--train` has written it."""
    data: dict[str, Any] = json.loads((FOLDER / "weights" / f"{name}.json").read_text(encoding="utf-8"))
    return data


def read(path: str) -> str:
    return (FOLDER / path).read_text(encoding="utf-8")


def assembled() -> str:
    """The page before Chromium has drawn its pictures."""
    data = {name: decoder(experiment) for name, experiment in MODELS.items()}
    data |= {name: one_layer(name) for name in ("adder", "product")}
    parts = {
        "style": read("style.css"),
        "worker": "\n".join(read(f"js/{name}.js") for name in SCRIPTS),
        "views": "\n".join(read(f"js/{name}.js") for name in VIEWS),
        "data": json.dumps(data, separators=(",", ":")),
    }
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], read("index.html"))


def drawn(page: Page, html: str) -> str:
    """The same with the first picture of every scene in it, so that it can be read before, or without, a script."""
    page.emulate_media(reduced_motion="reduce")
    page.set_content(html)
    page.evaluate("Cone.tryAll()")
    pictures: dict[str, str] = page.evaluate("stillPictures()")
    tried = re.sub(r" in [\d.]+ s", "", pictures["map-verdict"])
    pictures["map-verdict"] = f"When this page was made, {tried}"  # the reader's page tries them again
    for name, inner in pictures.items():
        before, tag, after = re.split(rf'(id="{name}"[^>]*>)[^<]*', html, maxsplit=1)
        html = before + tag + inner + after
    table = page.evaluate("byId('map').toDataURL()")
    return html.replace('id="map-still"', f'id="map-still" src="{table}"', 1)


MOVED = """([digits, i]) => {
    const sum = piAndE(digits), answer = wiresAnswer(adder.model, adder.cells, sum);
    put("hero-picture", cone(sum, adder.cells, answer.slice(0, i), i, { size: 36, gap: 70 }).svg(""));
}"""


def photograph(browser: Browser, html: str, folder: Path) -> None:
    """The cone as it moves in a short sum and in a long one, and each scene as a notebook's frame has it."""
    cone = browser.new_page(viewport={"width": 1100, "height": 900}, device_scale_factor=1.5)
    cone.set_content(html)
    taken, times = list[Image.Image](), list[int]()  # milliseconds
    for digits in (6, 20):
        for place in range(digits + 1):
            cone.evaluate(MOVED, [digits, place])
            taken.append(Image.open(io.BytesIO(cone.locator("#hero-picture").screenshot())).convert("RGB"))
        times += [700] * digits + [2000]
    colors = taken[len(taken) // 2].quantize(32, Image.Quantize.FASTOCTREE)
    first, *others = (picture.quantize(palette=colors, dither=Image.Dither.NONE) for picture in taken)
    first.save(folder / "cone.gif", save_all=True, append_images=others, duration=times, loop=0)
    (folder / "scenes").mkdir(exist_ok=True)
    for name in SHOWN:
        page = browser.new_page(viewport={"width": 900, "height": 900})
        page.evaluate("name => (window.name = name)", name)
        page.set_content(html)
        page.wait_for_function("window.name !== 'cone' || Cone.result")
        picture = Image.open(io.BytesIO(page.locator(f"#{name}").screenshot())).convert("RGB")
        few = picture.quantize(256, Image.Quantize.FASTOCTREE)  # which keeps the colours of thin lines
        few.save(folder / "scenes" / f"{name}.png", optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", choices=["adder", "product"], default=[], help="train these first")
    parser.add_argument("--output", type=Path, default=FOLDER.parent / "index.html")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("Chromium draws the page's pictures and is not here: install it (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for name in given.train:
            train(page, name)
        html = drawn(page, assembled())
        photograph(browser, html, given.output.parent)
        browser.close()
    size = len(html.encode())
    if size > MOST:
        sys.exit(f"the page would have {size:,} bytes, more than {MOST:,}: leave something out")
    given.output.write_text(html, encoding="utf-8")
    print(f"{given.output}: {size:,} bytes")


ADDER = """async () => {
    const cells = [[0, 0], [1, 0], [0, 1], [1, 1], [2, 1]], history = [];
    const news = ({step, wrong, right}) => step && history.push([step, wrong, ...right]);
    const {weights, extra, ...result} = await jobs.train({cells}, news);
    let broken, level = 0.005;
    while (!(broken = await jobs.disturb({cells, weights, level})).wrong) level += 0.0025;
    const {shape, unit} = adderOf(cells, weights).round(result.bits);
    return {cells, shape, unit, weights: [...weights], history, result, broken: {...broken, weights: null, level}};
}"""


def train(page: Page, name: str) -> None:
    """Train a one-layer model of the page, until no context is wrong: the adder as a reader does."""
    if name == "product":
        from product import train as train_product

        data: dict[str, Any] = train_product()
    else:
        page.set_content("<script>" + "\n".join(read(f"js/{script}.js") for script in SCRIPTS) + "</script>")
        data = page.evaluate(ADDER)
    data["weights"] = packed(data["weights"], data["shape"], data["unit"])
    (FOLDER / "weights" / f"{name}.json").write_text(json.dumps(data) + "\n", encoding="utf-8")


def packed(weights: list[float], shape: dict[str, int], unit: dict[str, float]) -> dict[str, str]:
    """Weights by part as whole multiples of the part's unit: matrices in 8 bits each, biases in 32."""
    depth, inner, classes = shape["D"], shape["F"], shape["classes"]
    sizes = {"T": shape["heads"] * shape["tokens"] * depth, "U": inner * depth, "u": inner}
    sizes |= {"W": depth * inner, "O": classes * depth, "o": classes}
    parts = dict(zip(sizes, np.split(np.array(weights), np.cumsum([*sizes.values()])[:-1]), strict=True))
    kinds = {name: np.int8 if name.isupper() else np.int32 for name in sizes}
    return {name: text_of((part / unit[name]).astype(kinds[name]).tobytes()) for name, part in parts.items()}


if __name__ == "__main__":
    main()
