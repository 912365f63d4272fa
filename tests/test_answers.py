"""A model's answers to problems typed by people: at the right width."""

import pytest
import torch
from torch import Tensor

from abc_nb import api
from abc_nb.common.errors import InputError
from abc_nb.problems.layouts import Layout
from abc_nb.runs import runner
from abc_nb.specs.spec import Spec, spec
from abc_nb.training import answers as module
from abc_nb.training.answers import answers


@pytest.mark.parametrize("name", ["addition-window", "n-by-1-window", "n-by-1-vanilla", "parity-vanilla"])
def test_a_model_is_asked_at_least_at_its_training_width(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, asked = spec(name, "smoke"), list[int]()

    def decode(model: object, source: Tensor, layout: Layout, start: int) -> Tensor:
        asked.append(layout.width)
        assert source.shape == (1, layout.source_length)
        return torch.zeros(1, layout.target_length, dtype=torch.long)

    monkeypatch.setattr(module, "greedy", decode)
    short, long = {"add": ("1+1", "1" * 50 + "+1"), "n-b": ("1*1", "1" * 50 + "*1"), "par": ("1", "1" * 50)}[name[:3]]
    for expression in (short, long):
        [*answers(chosen.build(0), chosen.sampler, [expression])]
    assert asked == [chosen.task.training_width, 50 + chosen.task.grows]


def test_an_answer_by_name_is_that_of_the_trained_model(
    tiny: Spec, folders: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "spec", lambda *_: tiny)
    with pytest.raises(InputError, match="not trained yet"):
        api.answer("successor-vanilla", "123")
    run = runner.ensure(tiny, 0)
    assert api.answer("successor-vanilla", "123") == next(answers(run.model(), tiny.sampler, ["123"]))
