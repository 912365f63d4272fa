"""Certificates of outputs that follow places or cells: contexts that are tried are those that occur, and what is said
is so. The oracle, which computes certificates a second time, agrees with those that are right and with no other."""

from dataclasses import asdict, replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from certifying import CASES, bias_of, lines_of, listed, logits_of, model_of, problems, rows, sampler_of, table_model
from oracle.check import check

from abc_nb import InputError, certify_model
from abc_nb.bias import ALiBi, Causal, Line, Lines, Window
from abc_nb.certificates import certify
from abc_nb.certificates.certify import weights_of
from abc_nb.certificates.places import NumberContexts
from abc_nb.common.config import to_data
from abc_nb.model.positions import NoPosition, PositionEncoding, Sinusoidal
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import Arrangement
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.evaluation import answers

OTHERS = ("subtraction", "cycle-navigation")
MORE = [*product(OTHERS, ("lines", "window", "decoder-only"), [Sinusoidal(3)])]
MORE += [("successor", "cross", Sinusoidal(3))]  # no keys in self-attention


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kind", "position"), [*CASES, *MORE])
def test_contexts_are_those_of_long_problems_and_the_oracle_finds_the_same(
    task: str, kind: str, position: PositionEncoding
) -> None:
    """Weights are random, so that contexts are wrong, and counterexamples are when they are decoded."""
    sampler = sampler_of(task, aligned=kind == "window")
    model = model_of(sampler, bias_of(task, kind), position)
    certificate = certify_model(model, sampler)
    checked = check(asdict(certificate), weights_of(model), to_data(model.config))
    assert checked.agrees
    assert (checked.contexts, checked.wrong) == (certificate.contexts, certificate.wrong)
    assert 0 < checked.margin - checked.left < 0.1
    assert certificate.wrong > 0 and certificate.counterexamples
    if task in OTHERS:  # in Subtraction a larger number is tried as well, though that is no problem
        return
    assert_contexts_are_those_of_long_problems(model, sampler)
    for example in certificate.counterexamples[:5]:
        sampler.task.read(example.problem)
        if not example.zeros:
            assert next(answers(model, sampler, [example.problem])) == example.answer
            assert sampler.task.right_answer(example.problem) == example.right


@torch.inference_mode()
def assert_contexts_are_those_of_long_problems(model: Transformer, sampler: Sampler) -> None:
    """They are listed, and have the same logits."""
    contexts, every = NumberContexts(model.config, sampler), dict[object, set[tuple[int, ...]]]()
    for width in (contexts.narrowest, contexts.widest + 7):
        batch = problems(sampler, width, 12)
        logits = model(batch.source, batch.target[:, :-1], batch.layout)
        for step in range(batch.layout.target_length):
            shape, block = contexts.contexts_at(batch, step)
            assert shape in contexts.shapes
            if shape not in every:
                every[shape] = listed(contexts, shape)
            assert {*rows(block)} <= every[shape] and len(every[shape]) == contexts.count(shape)
            torch.testing.assert_close(logits_of(model, contexts, shape, block), logits[:, step], atol=2e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_check_does_not_accept_another_certificate_or_model() -> None:
    sampler = sampler_of("successor")
    model = model_of(sampler, lines_of("successor"))
    data, config, weights = asdict(certify_model(model, sampler)), to_data(model.config), weights_of(model)
    assert not check(data | {"contexts": data["contexts"] - 1}, weights, config).agrees
    assert not check(data | {"wrong": 0, "certified": True}, weights, config).agrees
    first, second, *others = config["bias"]["lines"]
    swapped = config | {"bias": config["bias"] | {"lines": [second, first, *others]}}
    with pytest.raises(AssertionError, match="of other weights"):
        check(data, weights | {"head.bias": weights["head.bias"] + 1e-3}, config)
    with pytest.raises(AssertionError, match="of another bias"):
        check(data, weights, swapped)


def test_contexts_are_the_same_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampler_of("addition")
    contexts = NumberContexts(model_of(sampler, lines_of("addition")).config, sampler)
    whole = {shape: listed(contexts, shape) for shape in contexts.shapes}
    monkeypatch.setattr("abc_nb.certificates.automaton_walks.PAIRS_AT_ONCE", 40)
    assert whole == {shape: listed(contexts, shape) for shape in contexts.shapes}
    assert any(len([*contexts.blocks(shape)]) > 1 for shape in contexts.shapes)


def test_too_many_contexts_are_refused_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = sampler_of("successor")
    model = model_of(sampler, lines_of("successor"))
    many = certify_model(model, sampler).contexts
    monkeypatch.setattr(certify, "MOST_CONTEXTS", many - 1)
    with pytest.raises(InputError, match=f"there are {many:,} contexts"):
        certify_model(model, sampler)


class Wider(Lines):
    """A bias that derives from lines is not judged by its lines."""


PLACES = ModelConfig(16, 2, 32, 0, 2, position=NoPosition(), bias=Window(1))


def refused(task: Task, config: ModelConfig, arrangement: Arrangement = "natural", **changes: Any) -> str:
    model = Transformer(replace(config, **changes), len(task.vocabulary))
    with pytest.raises(InputError) as caught:
        certify_model(model, Sampler(task, arrangement))
    return str(caught.value)


def test_what_has_no_certificate_is_refused_in_a_sentence() -> None:
    places, lines = partial(refused, Task("successor"), PLACES), lines_of("successor")
    assert "never repeat" in places(position=Sinusoidal())
    assert "encoder layers" in places(encoder_layers=1)
    assert "go from the units up" in places(arrangement="as-written")
    wider = Wider(2, lines.lines, empty="closed")
    for bias in (Causal(), ALiBi(), Lines(2, ()), replace(lines, floor=-5.0), wider):
        assert "nothing bounds what an output looks at" in places(bias=bias)
    for task in ("direct-n-by-n", "parity-classification", "n-by-3"):
        assert "few states" in refused(Task(task), PLACES)
    whole = replace(lines.lines[0], span="whole", direction="diagonal", offset=1)
    assert "grows apart" in places(bias=replace(lines, lines=(*lines.lines, whole)))
    with pytest.raises(InputError, match="needs a Transformer"):
        certify_model(None, None)  # type: ignore[arg-type]


def test_what_has_no_certificate_of_a_table_is_refused() -> None:
    """Under a line that does not follow the cells, two different digits would have one name, and not all be tried."""
    task = Task("n-by-n", 2)
    for change in ({"decoder_layers": 2}, {"position": Sinusoidal(3)}, {"bias": Causal()}):
        said = refused(task, table_model(task).config, **change)
        assert "with positions, without lines or of several layers" in said
    for line in (
        Line("cross", 0, 2, "vertical", "operand 1", 0, 0.0),
        Line("cross", 0, 2, "diagonal", "operand 1", -1, 0.0),
        Line("cross", 0, 2, "vertical", "whole", 1, 0.0),
        Line("self", 0, 2, "vertical", "output", 1, 0.0),
    ):
        assert "does not follow the cells" in refused(task, table_model(task, more=(line,)).config)


def test_a_model_in_training_is_certified_as_it_answers() -> None:
    """Without its dropout."""
    sampler = sampler_of("successor")
    model = model_of(sampler, lines_of("successor"), dropout=0.5)
    evaluated, trained = (replace(certify_model(mode, sampler), seconds=0) for mode in (model.eval(), model.train()))
    assert evaluated == trained and model.training
