"""Certificates of answers inside of text: what stands around a problem changes nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_spans import PATTERNS, model

from abc_nb import InputError
from abc_nb.bias.text import SpanLines
from abc_nb.certificates.certify import certify_contexts, results_of
from abc_nb.certificates.rounding import Rounding
from abc_nb.certificates.states import States
from abc_nb.certificates.text import SpanContexts
from abc_nb.language.mixture import random_excerpt, texts
from abc_nb.model.transformer import Transformer
from abc_nb.problems.sampling import Batch
from abc_nb.problems.text import END, EQUALS, spans_in, text_tokens
from abc_nb.training.writer import Writer


@torch.inference_mode()
def lead_at(judge: Transformer, problem: str) -> tuple[float, float]:
    """The lead of the next token of an answer that is right so far, from its context alone, and a bound on rounding."""
    (span,) = judge.config.bias.spans(problem)
    answer = EQUALS + span.pattern.answer(span.operands) + END
    source, target = (torch.tensor([text_tokens(text)]) for text in (problem[: span.equals], answer))
    shape, block = SpanContexts.of(judge, span.pattern).contexts_at(
        Batch(source, target, span.layout), span.answer_length
    )
    states = States(Rounding(judge), shape.leaves).take(block.values)
    lead, left = states.margins(shape.root, torch.from_numpy(block.right))
    return lead.item(), (lead - left).item()


@pytest.mark.parametrize(
    "problem",
    [
        *("123+989=", "7+12345=253", "7+12345=25321", "12345*7=", "12345*7=51", "succ(99)=00", "parity(1)="),
        *("12345-989=6531", "123?989=1", "9876//4=", "9876//4=24", "9876//4=2469"),
    ],
)
def test_the_lead_from_the_context_is_that_of_the_problem_in_any_text(problem: str) -> None:
    """Up to the bound on rounding, in float32 and in float64, where that can change next to nothing."""
    judged, rng, (span,) = model(seed=1), np.random.default_rng(0), spans_in(problem, PATTERNS)
    right = text_tokens((span.pattern.answer(span.operands) + END)[span.answer_length])
    before = ["", "so ", *(random_excerpt(texts()[0], int(rng.integers(1, 60)), rng) + "\n" for _ in range(30))]
    for judge, most in ((judged, 1e-2), (judged.double(), 1e-6)):
        lead, bound = lead_at(judge, problem)
        assert 0 < bound < most
        for text in before:
            logits = Writer(judge).after(text + problem)
            in_text = logits[right[0]] - logits.scatter(0, torch.tensor(right), -torch.inf).max()
            assert float(in_text) == pytest.approx(lead, abs=bound, rel=0)


def test_a_model_that_knows_nothing_is_wrong_and_shows_it() -> None:
    untrained = model()
    contexts = SpanContexts.of(untrained, PATTERNS[2])
    results, certificate = results_of(untrained, contexts), certify_contexts(untrained, contexts)
    assert not certificate.certified and certificate.wrong == sum(each.wrong for each in results) > 0
    for example in certificate.counterexamples:
        (span,) = spans_in(example.problem, PATTERNS[2:3])
        assert PATTERNS[2].task.said(PATTERNS[2].answer(span.operands)) == example.right != example.answer


def test_what_cannot_be_certified_is_refused() -> None:
    with pytest.raises(InputError, match="at one position"):
        SpanContexts.of(model(SpanLines.whole(PATTERNS, 5, 3)), PATTERNS[0])
    lines = SpanLines.one_key_per_head(PATTERNS, 5, 2).lines[0]
    before = replace(next(line for line in lines.lines if line.attention == "source"), offset=-1)
    with pytest.raises(InputError, match="others than themselves"):
        SpanContexts(replace(lines, lines=(*lines.lines, before)), 2, PATTERNS[0])
