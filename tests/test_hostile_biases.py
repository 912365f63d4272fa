"""A calibrated bias from elsewhere: anything but lines that fit the model is refused in one sentence."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from helpers import correct_checksums

from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import Experiment
from abc_nb.runs import store
from abc_nb.training.answers import answers


def with_line(**change: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda bias: bias | {"lines": [*bias["lines"], bias["lines"][0] | change]}


def with_(**change: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda bias: bias | change


BIASES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a number": lambda bias: 3,
    "a list": lambda bias: [bias],
    "a line": lambda bias: bias["lines"][0],
    "another class": with_(type="Experiment"),
    "a list for a class": with_(type=["Lines"]),
    "lines without heads": lambda bias: {key: value for key, value in bias.items() if key != "heads"},
    "a billion heads": with_(heads=10**9),
    "heads of text": with_(heads="2"),
    "no heads": with_(heads=None),
    "lines of numbers": with_(lines=[1, 2]),
    "lines of text": with_(lines="lines"),
    "lines in lines": lambda bias: bias | {"lines": [bias]},
    "an unknown setting": with_(slope=2),
    "an unknown word for empty": with_(empty="open"),
    "a floor that is no number": with_(floor=float("nan")),
    "head -1": with_line(head=-1),
    "head 2 of 2": with_line(head=2),
    "half a head": with_line(head=0.5),
    "a truth for a head": with_line(head=True),
    "a huge offset": with_line(offset=10**9),
    "an offset of a hundred digits": with_line(offset=10**100),
    "an offset of text": with_line(offset="1"),
    "a value that is no number": with_line(value=float("nan")),
    "an infinite value": with_line(value=float("inf")),
    "a direction that is none": with_line(direction="sideways"),
    "an attention that is none": with_line(attention="both"),
    "a list for a span": with_line(span=["whole"]),
}


def refuses(run: store.Run, content: bytes) -> None:
    (run.folder / "bias.json").write_bytes(content)
    correct_checksums(run.folder)
    found = store.find(run.experiment, 0)
    assert found is not None
    for use in (found.bias, found.model):
        with pytest.raises(InputError, match=r"bias\.json does not hold a calibrated bias of 2 heads"):
            use()


@pytest.mark.parametrize("change", BIASES.values(), ids=BIASES.keys())
def test_a_bias_that_is_none_is_refused(change: Callable[[dict[str, Any]], Any], calibrated: store.Run) -> None:
    refuses(calibrated, json.dumps(change(json.loads((calibrated.folder / "bias.json").read_text()))).encode())


NO_JSON = [b"", b"{", b"\xff\xfe\xff", b"[" * 100_000, b"9" * 5000, b"[" * 700 + b"]" * 700]


@pytest.mark.parametrize("content", NO_JSON, ids=range(len(NO_JSON)))
def test_a_bias_that_is_no_json_is_refused(content: bytes, calibrated: store.Run) -> None:
    refuses(calibrated, content)


def test_a_bias_of_a_million_lines_is_refused_and_not_read(calibrated: store.Run) -> None:
    line = b'{"type": "Line"},'
    tracemalloc.start()
    refuses(calibrated, b'{"type": "Lines", "lines": [' + line * (store.LARGEST_BIAS // len(line)))
    assert tracemalloc.get_traced_memory()[1] < 3 * store.LARGEST_BIAS
    tracemalloc.stop()


def test_lines_that_no_layout_has_are_one_sentence(calibrated: store.Run, child: Experiment) -> None:
    path = calibrated.folder / "bias.json"
    path.write_text(json.dumps(with_line(span="operand 9", attention="cross")(json.loads(path.read_text()))))
    correct_checksums(calibrated.folder)
    with pytest.raises(InputError, match="this bias follows 'operand 9', which the layout does not have"):
        next(answers(calibrated.model(), child.sampler, ["99"]))


def test_a_bias_beside_a_run_that_was_not_calibrated_is_not_used(
    run: store.Run, calibrated: store.Run, tiny: Experiment
) -> None:
    shutil.copy(calibrated.folder / "bias.json", run.folder)
    found = store.find(tiny, 0)
    assert found is not None
    assert found.bias() is None
