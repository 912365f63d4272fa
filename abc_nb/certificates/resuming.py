"""The parts of a long certificate that are done, kept in a file, so that a killed process goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from abc_nb.certificates.shapes import Shape
from abc_nb.certificates.tried import Tried


class Done:
    """One line of JSON for each part. The first line is the `key`: a file with another one is begun anew.

    Without a path nothing is kept.
    """

    def __init__(self, path: Path | None, key: str) -> None:
        self.path, self.known = path, dict[str, list]()
        if path is None:
            return
        lines = path.read_text("utf-8").split("\n") if path.exists() else []
        if lines[:1] == [key]:
            self.known = dict(json.loads(line) for line in lines[1:-1])  # the last one is empty, or was cut off
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([key, *(json.dumps(each) for each in self.known.items()), ""]), "utf-8")

    def find(self, shape: Shape, part: Sequence[int], attempt: Callable[[], Tried]) -> Tried:
        """What trying a part of a shape's contexts gave, from the file or by a new attempt."""
        name = " ".join(map(str, part))
        if name in self.known:
            return from_plain(shape, self.known[name])
        found = attempt()
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, to_plain(found)]) + "\n")
        return found

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def to_plain(tried: Tried) -> list[object]:
    narrow = [(margin, values.tolist(), right) for margin, values, right in tried.narrow]
    examples = [(values.tolist(), right) for values, right in tried.examples]
    return [tried.contexts, tried.wrong, tried.margin, narrow, examples]


def from_plain(shape: Shape, data: list) -> Tried:
    contexts, wrong, margin, narrow, examples = data
    narrow = [(each, np.array(values, np.uint8), right) for each, values, right in narrow]
    examples = [(np.array(values, np.uint8), right) for values, right in examples]
    return Tried(shape, [], contexts, wrong, margin, narrow, examples)
