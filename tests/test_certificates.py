"""Certificates of outputs that follow places: contexts that are tried are those that occur, and what is said is so."""

from dataclasses import replace

import pytest
import torch
from certifying import CASES, TASKS, bias_of, lines_of, listed, logits_of, model_of, problems, rows, sampler_of

from abc_nb import InputError, certify_model
from abc_nb.bias import ALiBi, Bias, Causal, Window
from abc_nb.bias.lines import Lines
from abc_nb.certificates import certify
from abc_nb.certificates.places import NumberContexts
from abc_nb.model.positions import NoPosition, PositionEncoding, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.evaluation import answers

NOWHERE = NoPosition()


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kind", "position"), CASES)
@torch.inference_mode()
def test_contexts_of_long_problems_are_listed_with_the_same_logits(
    task: str, kind: str, position: PositionEncoding
) -> None:
    sampler = sampler_of(task, aligned=kind == "window")
    model = model_of(sampler, bias_of(task, kind), position)
    contexts, every = NumberContexts(model.config, sampler), dict[object, set[tuple[int, ...]]]()
    for width in {contexts.narrowest, contexts.narrowest + 1, contexts.widest + 7}:
        batch = problems(sampler, width, 12)
        logits = model(batch.source, batch.target[:, :-1], batch.layout)
        for step in range(batch.layout.target_length):
            shape, block = contexts.seen(batch, step)
            assert shape in contexts.shapes
            if shape not in every:
                every[shape] = listed(contexts, shape)
            assert {*rows(block)} <= every[shape] and len(every[shape]) == contexts.count(shape)
            torch.testing.assert_close(logits_of(model, contexts, shape, block), logits[:, step], atol=2e-4, rtol=1e-4)


def test_contexts_are_the_same_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampler_of("addition")
    contexts = NumberContexts(model_of(sampler, lines_of("addition")).config, sampler)
    whole = {shape: listed(contexts, shape) for shape in contexts.shapes}
    monkeypatch.setattr("abc_nb.certificates.walks.PAIRS_AT_ONCE", 40)
    assert whole == {shape: listed(contexts, shape) for shape in contexts.shapes}
    assert any(len([*contexts.blocks(shape)]) > 1 for shape in contexts.shapes)


@pytest.mark.slow
@pytest.mark.parametrize("task", [*TASKS, "n-by-2"])
def test_counterexamples_are_wrong_when_decoded(task: str) -> None:
    sampler = sampler_of(task)
    model = model_of(sampler, lines_of(task))
    examples = certify_model(model, sampler).counterexamples
    assert examples
    for example in examples[:5]:
        sampler.task.read(example.problem)
        if not example.zeros:
            assert next(answers(model, sampler, [example.problem])) == example.answer
            assert sampler.task.right_answer(example.problem) == example.right


def test_too_many_contexts_are_refused_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampler_of("successor")
    model = model_of(sampler, lines_of("successor"))
    many = certify_model(model, sampler).contexts
    monkeypatch.setattr(certify, "MOST_CONTEXTS", many - 1)
    with pytest.raises(InputError, match=f"there are {many:,} contexts"):
        certify_model(model, sampler)


def refused(
    bias: Bias | None = None,
    position: PositionEncoding = NOWHERE,
    encoder: int = 0,
    task: str = "successor",
    arrangement: Arrangement = "natural",
) -> str:
    sampler = Sampler(Task(task), arrangement)
    config = ModelConfig(16, 2, 32, encoder, 2, position=position, bias=bias or Window(1))
    model = Transformer(config, len(sampler.task.vocabulary))
    with pytest.raises(InputError) as caught:
        certify_model(model, sampler)
    return str(caught.value)


def test_what_has_no_certificate_is_refused_in_a_sentence() -> None:
    assert "never repeat" in refused(position=Sinusoidal())
    assert "encoder layers" in refused(encoder=1)
    assert "go from the units up" in refused(arrangement="as-written")
    assert "nothing bounds what an output looks at" in refused(Causal())
    assert "nothing bounds what an output looks at" in refused(ALiBi())
    assert "nothing bounds what an output looks at" in refused(replace(lines_of("successor"), floor=-5.0))
    assert "nothing bounds what an output looks at" in refused(Lines(2, ()))
    for task in ("direct-n-by-n", "parity-classification", "n-by-3"):
        assert "few states" in refused(task=task)
    whole = [replace(line, span="whole", direction="diagonal", offset=1) for line in lines_of("successor").lines[:1]]
    assert "grows apart" in refused(Lines(2, (*lines_of("successor").lines, *whole), empty="closed"))
    with pytest.raises(InputError, match="needs a Transformer"):
        certify_model(None, None)  # type: ignore[arg-type]


def test_a_model_in_training_is_certified_as_it_answers() -> None:
    """Without its dropout."""
    sampler = sampler_of("successor")
    model = model_of(sampler, lines_of("successor"), dropout=0.5)
    found = [replace(certify_model(own, sampler), seconds=0) for own in (model.eval(), model.train())]
    assert found[0] == found[1] and model.training
