"""A language model: its rows, its training and run, and what it answers to a text."""

from __future__ import annotations

import io
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Folders
from helpers import assert_same_result, assert_same_weights, interrupt, never
from test_spans import PATTERNS, model

from abc_nb import InputError, api, cli
from abc_nb.bias.text import SpanLines
from abc_nb.calibration.calibrate import Calibration
from abc_nb.language import calibration
from abc_nb.language.answering import problems_of, spoken
from abc_nb.language.calibration import calibrate_text
from abc_nb.language.mixture import Mixture, solved, texts
from abc_nb.language.training import TextLosses, text_loss, token_losses, training_on_text
from abc_nb.problems.layouts import Layout
from abc_nb.problems.text import spans_in, text_of
from abc_nb.runs import runner, store
from abc_nb.specs.language import HEADS, LAYERS, LanguageSpec, language_models, patterns
from abc_nb.specs.spec import spec
from abc_nb.training.fit import fit
from abc_nb.training.recipe import TrainingConfig
from abc_nb.training.writer import MEMORY, Writer

SHORT = TrainingConfig(steps=6, batch=4, held_batch=4, hold=3, learned=2.0, again=1, validate_every=3, validation=8)


def tiny() -> LanguageSpec:
    """Of two tasks: the others have most of the contexts."""
    own, few = language_models()["abs"], patterns()[2:]
    config = replace(own.model, width=32, feed_forward=32, bias=SpanLines.one_key_per_head(few, HEADS, LAYERS))
    short = replace(own, mixture=Mixture(few, 96), model=config, training=SHORT, practice=SHORT)
    return replace(short, rounds=1, tests=((3, 2),))


def test_text_has_no_digits_and_what_is_held_out_is_apart() -> None:
    training, held = texts()
    assert not any(character.isdigit() for character in training + held)
    assert len(held) > len(training) / 20
    assert not {*held.split("\n\n")} & {*training.split("\n\n")}


@pytest.mark.parametrize("held_out", [False, True])
def test_rows_hold_problems_that_are_answered_right(held_out: bool) -> None:
    batch = Mixture(PATTERNS).rows(np.random.default_rng(1), 200, held_out)
    found = Counter[str]()
    for text in batch.texts:
        assert len(text) == 256
        for span in spans_in(text, PATTERNS):
            if span.finished and span.end < len(text):
                assert max(span.lengths) <= 6
                assert text.startswith(solved(span.pattern, span.operands), span.start)
                found[span.pattern.task.name] += 1
    assert len(found) == len(PATTERNS) and min(found.values()) > 40


def test_a_training_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    spec, file = tiny(), tmp_path / "checkpoint.pt"
    whole, killed, later = (
        training_on_text(spec.build(0), spec.mixture, replace(SHORT, validate_every=2), 0) for _ in range(3)
    )
    interrupt(killed, file)
    whole.run()
    later.run(file)
    assert_same_weights(later, whole)


def test_problems_that_were_wrong_come_again() -> None:
    spec = tiny()
    rows = TextLosses(spec.build(0), spec.mixture, SHORT, 0)
    fit(rows.model, rows.losses, replace(SHORT, steps=1))
    missed = [text_of(tokens.tolist()) for tokens in rows.missed]
    fresh, again = ("".join(spec.mixture.training_batch(0, 1, 8, known).texts) for known in ((), missed))
    assert sum(map(again.count, missed)) > sum(map(fresh.count, missed))
    others = TextLosses(rows.model, spec.mixture, replace(SHORT, again=0), 0)
    assert next(rows.losses(1, 8)) != next(others.losses(1, 8))


def test_a_run_is_made_kept_found_and_shipped(folders: Folders) -> None:
    """As any run of arithmetic; what is special are its facts, a row a form and a certificate a form."""
    run = runner.ensure(tiny(), 0)
    assert_same_result(runner.ensure(tiny(), 0, never), run)
    assert run.table("evaluation").length.tolist() == [3] * 2 == run.evaluation().length.tolist()
    practised, steps = run.facts["practised"], run.table("history").step
    assert practised["rounds"] == 2 and len(run.facts["wrong"]) == 3, "one round, and one more at a lower rate"
    assert steps.is_monotonic_increasing and steps.max() == run.facts["steps"]
    assert practised["steps"] == run.facts["steps"] - run.facts["trained"]["steps"]
    assert [each["facts"]["form"] for each in run.certificates] == [pattern.form for pattern in patterns()[2:]]
    store.ship(run, weights=True)
    shipped = store.find(tiny(), 0, ("shipped",))
    assert shipped is not None and shipped.bias() == run.bias()
    assert_same_result(shipped, run)
    after = [Writer(each.model()).after("it is succ(12)=") for each in (run, shipped)]
    assert torch.equal(*after)
    assert run.facts["text"] == pytest.approx(text_loss(run.model(), 256))


def test_names_give_specs_of_their_own() -> None:
    assert len({each.key(0) for each in language_models().values()}) == len(language_models())
    with pytest.raises(InputError, match="language-abs"):
        spec("language-abz")
    with pytest.raises(InputError, match=r"run `abc-nb train language-text --set training\.steps=6` first"):
        api.load("language-text", changes=["training.steps=6"])


def test_lines_are_read_out_of_attention_inside_of_problems() -> None:
    """A token before the `=` sees itself alone, one of an answer what lines show; the model under them is a model."""
    parent = model(SpanLines.whole(PATTERNS[:2], 5, 8))
    bias = calibrate_text(parent, Calibration(share=0.3), 3, 0)
    spans = bias.spans("a 123+989=2111; b")
    matrix = bias.rows(spans, 0, 0, 17)
    assert (matrix[:, range(2, 9), range(2, 9)] > -torch.inf).all()
    assert ((matrix[:, 2:9] > -torch.inf).sum(2) == 1).all()
    assert not (matrix[:, 2:14, :2] > -torch.inf).any()
    rows = Mixture(PATTERNS).rows(np.random.default_rng(0), 2)
    assert token_losses(parent.with_bias(bias), rows)[0].isfinite().all()


def test_the_sparsest_lines_that_determine_the_answer_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits of this place have 55% of the attention and those below 45%: without these a carry is not known."""
    pattern, parent = PATTERNS[0], model(SpanLines.whole(PATTERNS, 5, 8))

    def attention(_: object, texts: list[str], layout: Layout) -> dict[tuple[str, int], torch.Tensor]:
        cross = torch.zeros(5, layout.target_length, layout.source_length)
        for head in range(5):
            units = layout.operands[head % 2].last
            for step in range(layout.target_length):
                for below, share in ((0, 0.55), (1, 0.45)):
                    if 0 <= step - below <= 3:
                        cross[head, step, units - (step - below)] = share
        nothing = torch.zeros(5, layout.target_length, layout.target_length)
        return {(name, layer): part for layer in range(LAYERS) for name, part in (("cross", cross), ("self", nothing))}

    monkeypatch.setattr(calibration, "average_attention_of_answers", attention)
    for share, wanted in ((0.5, [0]), (0.25, [0, 1]), (None, [0, 1])):
        lines = calibration.calibrate_pattern(parent, pattern, Calibration(share=share), 4, 0).lines
        numbers = [line for line in lines if line.span.startswith("operand")]
        assert sorted({line.offset for line in numbers}) == wanted
        assert {line.span for line in numbers} == {"operand 1", "operand 2"}


# ---- what a person types


def test_problems_of_a_text_are_found_or_refused_in_a_sentence() -> None:
    text, spans = problems_of(PATTERNS, "first 12+34= then succ(9)=; and last 5*6")
    assert text.endswith("5*6=") and [span.pattern.task.name for span in spans] == ["addition", "successor", "n-by-1"]
    for typed, words in (
        ("", "no text"),
        ("  ", "no text"),
        ("1+", "not finished"),
        ("succ(1", "not finished"),
        ("1+2=3", "goes on behind its '='"),
        ("1+2==", "goes on behind its '='"),
        ("1+2=333", "goes on behind its '='"),
        ("1+2+3=", "nothing joined"),
        ("-1+2=", "nothing joined"),
        ("1 + 2+3 = and 3+4=", "cannot read '1 [+] 2[+]3='"),
        ("7 * 12+34=", "nothing joined"),
        ("1 000+234=", "nothing joined"),
        ("20:4+5=", "nothing joined"),
        ("12*34=", "nothing joined"),
        ("12-34=", "a-b= with a >= b"),
        ("7//0=", "nothing joined"),
        ("café 1+2=", "'é' is unknown"),
        ("1×2=", "'×' is unknown"),
    ):
        with pytest.raises(InputError, match=words) as error:
            problems_of(PATTERNS, typed)
        assert "\n" not in str(error.value)


def test_a_text_is_read_as_people_write_it() -> None:
    """With spaces around signs, thousands separators, lines of another system, numbers that are no problem."""
    for typed, read in (
        ("12 + 34 = and 1,234+5=", "12+34= and 1234+5="),
        ("we have 5 * 7", "we have 5*7="),
        ("34 - 12 = and 1,000-999=, so 7 ? 12 = and 9,876 // 4 =", "34-12= and 1000-999=, so 7?12= and 9876//4="),
        ("we have 5*7= here\r\n1. succ(9)=\r\n", "we have 5*7= here\n1. succ(9)=\n"),
        ("we have 5*7= apples in 2024", "we have 5*7= apples in 2024"),
    ):
        text, spans = problems_of(PATTERNS, typed)
        assert text == read and len(spans) == text.count("=")


def test_a_text_is_answered_continued_or_refused() -> None:
    own = model()
    assert spoken(own, "what is 12+34=, and succ(9)=; so").count("\n") == 1
    whole = spoken(own, "what is 12+34=, and succ(9)=; so", whole=True)
    assert whole.startswith("what is 12+34=") and whole.endswith("; so")
    assert whole.count("=") == 2 and ";, and succ(9)=" in whole and ";;" not in whole
    assert spoken(own, "no problem here", whole=True).startswith("no problem here")
    assert spoken(model(SpanLines(5)), "any text").startswith("any text")
    with pytest.raises(InputError, match="no problem in"):
        spoken(own, "no problem here")
    with pytest.raises(InputError, match="GB of memory"):
        spoken(own, "1+" + "2" * (MEMORY // 20_000) + "=")


def test_the_command_line_and_python_answer_texts(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a model that was never trained, whose answers are as good as any here."""
    untrained = language_models()["abs"]
    state = untrained.build(0).state_dict()
    record = store.record_of(untrained, 0, {"weights": store.tensors_checksum(state)}, {})
    store.write_run(record, state, folders.runs / untrained.key(0))
    assert cli.main(["compute", "language-abs", "12+34= and 5*6="]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 2 and printed == api.answer("language-abs", "12+34= and 5*6=") + "\n"
    assert cli.main(["compute", "language-abs", "12+34= so", "--text"]) == 0
    assert capsys.readouterr().out.startswith("12+34=")
    monkeypatch.setattr(sys, "stdin", io.StringIO("1+2= 3+4=\n\nno\n"))
    assert cli.main(["compute", "language-abs", "-"]) == 2
    streams = capsys.readouterr()
    assert streams.out.count("\n") == 3 and "line 3" in streams.err and "line 2" not in streams.err


def test_the_shipped_model_answers_long_sums_in_a_text() -> None:
    rng = random.Random(0)
    a, b, c = (rng.randrange(10**99, 10**100) for _ in range(3))
    text = f"It is known that {a}+{b}= holds, and succ({c})= comes next."
    assert api.answer("language-abs", text).splitlines() == [str(a + b), str(c + 1)]
    whole = api.answer("language-abs", text, trace=True)
    assert whole.startswith(f"It is known that {a}+{b}={str(a + b)[::-1]}; holds") and whole.endswith("; comes next.")


def test_answers_in_a_text_are_computed_in_float64() -> None:
    """For which certificates hold: a bias of all logits, which changes no answer, leaves float32 too few digits."""
    model = api.load("language-abs").model()
    with torch.no_grad():
        model.head.bias += 2.0**30
    assert spoken(model, "it is succ(370)= and 12+34=") == "371\n46"
