"""Writes build/site: the page, the course, and every file that these link to, with links that work there.

python docs/page/website.py [FOLDER]

Notebooks, without their imports, and Markdown become HTML; other files are copied. A link to a file that is not
there is an error.
"""

import re
import shutil
import sys
from os.path import relpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

import mistune
from nbconvert import HTMLExporter
from traitlets.config import Config

ROOT = Path(__file__).parents[2]
PAGE = Path("docs/index.html")
HIDDEN = Config(TagRemovePreprocessor={"enabled": True, "remove_input_tags": ["hide-input"]})  # imports
FRAME = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ max-width: 46em; margin: 2em auto; padding: 0 1em; font: 18px/1.6 Georgia, serif }}
pre {{ overflow-x: auto; background: #f4f2ec; padding: 0.7em }} table {{ border-collapse: collapse }}
td, th {{ border: 1px solid #ddd; padding: 2px 8px }} img {{ max-width: 100% }}</style></head><body>{body}</body></html>
"""
LINK = re.compile(r"""(?<=[\s])(href|src)=(["'])(?!https?:|data:|mailto:|javascript:|#)([^"'{}$]+)\2""")


def place(source: Path) -> Path:
    """Where a file of the repository stands in the site."""
    if source == PAGE:
        return Path("index.html")
    return source.with_suffix(".html") if source.suffix in (".ipynb", ".md") else source


def heading(found: re.Match[str]) -> str:
    """A heading with the anchor that repositories give it."""
    level, text = found.groups()
    plain = re.sub(r"<[^>]*>|[^\w\s-]", "", text).strip().lower()
    return f'<h{level} id="{plain.replace(" ", "-")}">{text}</h{level}>'


def converted(source: Path, exporter: HTMLExporter) -> str | None:
    """A file as HTML, or None for one that stays as it is."""
    path = ROOT / source
    if source.suffix == ".ipynb":
        body: str = exporter.from_filename(str(path))[0]
        return body
    if source.suffix == ".md":
        body = str(mistune.html(path.read_text(encoding="utf-8")))
        return FRAME.format(title=source.stem, body=re.sub(r"<h(\d)>(.*?)</h\1>", heading, body))
    return path.read_text(encoding="utf-8") if source == PAGE else None


def write(folder: Path, start: list[Path]) -> None:
    """Write files and all that they link to, once each."""
    exporter, todo = HTMLExporter(config=HIDDEN), list(start)
    for source in todo:  # which grows
        target, html = folder / place(source), converted(source, exporter)
        target.parent.mkdir(parents=True, exist_ok=True)
        if html is None:
            shutil.copyfile(ROOT / source, target)
            continue

        def moved(found: re.Match[str], source: Path = source) -> str:
            parts = urlsplit(found[3])
            linked = Path(relpath((ROOT / source).parent / unquote(parts.path), ROOT))
            if not (ROOT / linked).is_file():
                sys.exit(f"{source} links to {found[3]}, which is not there: correct the link")
            if linked not in todo:
                todo.append(linked)
            fragment = f"#{parts.fragment}" if parts.fragment else ""
            return f'{found[1]}="{relpath(place(linked), place(source).parent)}{fragment}"'

        target.write_text(LINK.sub(moved, html), encoding="utf-8")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    shutil.rmtree(folder, ignore_errors=True)
    notebooks = sorted(path.relative_to(ROOT) for path in (ROOT / "notebooks").glob("*.ipynb"))
    write(folder, [PAGE, *notebooks])
    print(f"{folder}: {sum(path.is_file() for path in folder.rglob('*'))} files")


if __name__ == "__main__":
    main()
