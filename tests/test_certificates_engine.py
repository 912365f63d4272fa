"""What is tried once, again and not at all: against all contexts in float64, with models that are wrong somewhere."""

import numpy as np
import pytest
import torch
from certifying import bias_of, model_of, sampler_of, table_model
from torch import Tensor

import abc_nb
from abc_nb import InputError, certify_model
from abc_nb.certificates.certify import Margins, Result, contexts_of, results_of
from abc_nb.certificates.contexts import Contexts
from abc_nb.certificates.rounding import Unbounded, check_finite
from abc_nb.model.positions import NoPosition, Sinusoidal
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import Task
from abc_nb.training.evaluation import evaluating, in_float64

KINDS = [("successor", "decoder-only"), ("n-by-1", "window"), ("n-by-n", "tables")]


def with_sampler(task: str, kind: str) -> tuple[Transformer, Sampler]:
    if kind == "tables":
        sampler = Sampler(Task(task, 2))
        return table_model(sampler.task), sampler
    sampler = sampler_of(task, aligned=kind == "window")
    return model_of(sampler, bias_of(task, kind), Sinusoidal(3) if kind == "window" else NoPosition()), sampler


@pytest.mark.parametrize(("task", "kind"), KINDS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_no_certificate_where_a_number_is_not_finite_or_products_overflow(task: str, kind: str, value: float) -> None:
    """Any number of any tensor, also one that no right token depends on."""
    model, sampler = with_sampler(task, kind)
    check_finite(model)
    for name, weights in model.state_dict().items():
        kept = weights.clone()
        weights.view(-1)[-1] = value
        with pytest.raises(InputError, match="can overflow" if value == 1e30 else name.replace(".", r"\.")):
            check_finite(model)
        weights.copy_(kept)
    model.decoder[0].self_attention.query.bias.data[0] = value
    with pytest.raises(InputError, match="no certificate"):
        certify_model(model, sampler)


def results_of_every_context(model: Transformer, contexts: Contexts) -> list[Result]:
    """Those of certificates, which are the same as in float64 without a bound on rounding."""
    results, margins = results_of(model, contexts), Margins(Unbounded(in_float64(model)), contexts)
    for result in results:
        with evaluating(model):
            blocks = filter(len, contexts.blocks(result.shape))
            margin = np.concatenate([margins(result.shape, block)[0] for block in blocks])
        assert (result.contexts, result.wrong) == (len(margin), (margin <= 0).sum())
        tried_before = result.margin == np.inf  # in a shape with the same tree, where all were right
        assert tried_before or result.margin == pytest.approx(margin.min(), abs=1e-9)
    return results


def test_results_of_a_table_are_those_of_every_context_in_float64() -> None:
    """Of other tasks the oracle says so, which does not know tables."""
    model, sampler = with_sampler("n-by-n", "tables")
    assert all(result.margin < 0 for result in results_of_every_context(model, contexts_of(model, sampler)))


def test_contexts_of_shapes_with_one_tree_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are right for sure: the others are found in every shape that shows them."""
    model, sampler = with_sampler("addition", "window")
    tried = list[int]()
    once = Margins.__call__
    monkeypatch.setattr(Margins, "__call__", lambda *given: tried.append(len(given[2])) or once(*given))
    certificate = certify_model(model, sampler)
    fewer, tried[:] = sum(tried), []
    monkeypatch.setattr("abc_nb.certificates.tried.REMEMBERED", 0)
    every = certify_model(model, sampler)
    assert fewer < sum(tried) == every.contexts == certificate.contexts
    assert (certificate.wrong, certificate.margin, certificate.counterexamples) == (
        every.wrong,
        every.margin,
        every.counterexamples,
    )


def test_the_few_wrong_contexts_of_a_disturbed_model_are_all_found() -> None:
    """Of a certified model, with noise that is just large enough: some are in shapes that have one tree."""
    run = abc_nb.load("addition-window-cyclic-practised-base4")
    model, contexts = run.model(), contexts_of(run.model(), run.spec.sampler)
    draw, wrong = torch.Generator().manual_seed(0), 0
    while not wrong:
        with torch.no_grad():
            for weights in model.parameters():
                weights.add_(0.02 * weights.std() * torch.randn(weights.shape, generator=draw))
        wrong = sum(result.wrong for result in results_of(model, contexts))
    results = results_of_every_context(model, contexts)
    assert sum(result.wrong for result in results) == wrong < 0.05 * sum(result.contexts for result in results)


def test_a_model_in_float64_has_positions_in_float64() -> None:
    model, _ = with_sampler("addition", "window")
    double = in_float64(model)
    tokens = torch.arange(6)[None]
    with torch.inference_mode():
        added: Tensor = (double.embed(tokens, torch.arange(6)) - double.embedding(tokens) * 16**0.5)[0]
    angle = (np.arange(6) % 3)[:, None] / 10000 ** (np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(added[:, ::2].numpy(), np.sin(angle), atol=1e-14)
