"""What the explorers say and draw, without widgets: against Python integers, plain loops and dense masks."""

import numpy as np
import pytest
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure

from abc_nb.analysis.attention import AttentionStudy
from abc_nb.bias.base import ENCODER_DECODER, Attention
from abc_nb.bias.lines import cells_of
from abc_nb.calibration.calibrate import Calibration
from abc_nb.calibration.calibrate_model import calibrate_model
from abc_nb.common.errors import InputError
from abc_nb.runs import store
from abc_nb.show import pictures
from abc_nb.show.explorers import attention as explore
from abc_nb.show.explorers import calibration as calibrating
from abc_nb.specs.spec import abc_of, spec
from abc_nb.training.evaluation import answers


@pytest.fixture(scope="module")
def study(vanilla: store.Run) -> AttentionStudy:
    return AttentionStudy(vanilla, samples=20)


@pytest.fixture(scope="module")
def bench(study: AttentionStudy) -> calibrating.Bench:
    return calibrating.Bench(study.run, abc_of("addition-vanilla", "smoke"))


@pytest.fixture
def figure() -> Figure:
    return pictures.fixed_figure(940, 580)


def cells(figure: Figure, panel: int = 0) -> np.ndarray:
    """What a panel shows as a heat map."""
    return np.ma.getdata(figure.axes[panel].images[0].get_array())


@pytest.mark.parametrize("text", ["123+989", "0+0", " 999999 + 1 ", "123456789012+987654321098"])
def test_the_answer_is_what_compute_gives_and_the_right_one_what_python_gives(study: AttentionStudy, text: str) -> None:
    said, decoded = explore.ask(study, text)
    answer = next(answers(study.model, study.run.spec.sampler, [text]))
    wrong = sum(a != b for a, b in zip(decoded.outputs, decoded.expected, strict=True))
    right = sum(int(part) for part in text.split("+"))
    assert said == f"{text.strip()} = {answer} ✗ wrong in {wrong} of {len(decoded.outputs)} tokens; right is {right}"


def test_the_answer_of_a_table_is_its_product() -> None:
    said, _ = explore.ask(AttentionStudy(store.find(spec("n-by-n-abs"), 0), samples=2), "12*34")
    assert said == "12*34 = 408 ✓ right"


def test_a_problem_that_is_too_long_is_one_sentence(study: AttentionStudy) -> None:
    with pytest.raises(InputError, match="65 digits is too long to be drawn: type at most 64"):
        explore.ask(study, "1+" + "9" * 65)


@pytest.mark.parametrize("name", ENCODER_DECODER)
def test_the_sentence_of_a_step_names_the_largest_weights_and_the_needed_ones(
    study: AttentionStudy, name: Attention
) -> None:
    decoded = explore.ask(study, "123456+989")[1]
    chosen = decoded.head(name, 0, 1)
    for step, weights in enumerate(chosen.weights.tolist(), 1):
        sentence = explore.step_sentence(decoded, chosen, step)
        assert sentence.startswith(f"Step {step} writes {decoded.outputs[step - 1]} ")
        largest = max(range(len(weights)), key=lambda column: weights[column])
        assert f"looks at {chosen.keys[largest]} in column {largest + 1} {weights[largest]:.0%}" in sentence
        needed = [weight for weight, cell in zip(weights, chosen.needed[step - 1], strict=True) if cell]
        assert (f"{sum(needed):.0%} is on the needed cells" if needed else "no cell is needed here") in sentence


@pytest.mark.parametrize("step", [1, 4, 8])
def test_a_map_hides_later_steps_and_marks_wrong_tokens(study: AttentionStudy, figure: Figure, step: int) -> None:
    decoded = explore.ask(study, "123+989")[1]
    said = [("" if right else "✗ ") + token for token, right in zip(decoded.outputs, decoded.right, strict=True)]
    explore.draw_head(figure, decoded.head("cross", 0, 1), step)
    np.testing.assert_array_equal(cells(figure)[:step], decoded.weights["cross", 0][1][:step])
    assert np.isnan(cells(figure)[step:]).all()
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == said[:step] + ["·"] * (len(said) - step)
    assert [label.get_fontweight() != "bold" for label in labels[:step]] == decoded.right[:step]


def test_the_bench_reads_the_lines_that_calibration_reads(bench: calibrating.Bench) -> None:
    batch, settings = bench.parent.spec.sampler.calibration_batch(0), Calibration(share=0.1)
    assert bench.calibrate(0.1) == calibrate_model(bench.parent.model(), batch, settings).bias


def test_cells_on_kept_lines_are_framed_and_closed_cells_of_the_bias_are_grey(
    bench: calibrating.Bench, figure: Figure
) -> None:
    bias = bench.calibrate(0.1)
    text = bench.draw(figure, 0.1, "cross", 1, 12)
    shown, frames = cells(figure), figure.axes[0].collections[::2]  # of frames one of the two colours
    for head, (drawn, weights) in enumerate(zip(frames, bench.averages["cross", 0].numpy(), strict=True)):
        assert isinstance(drawn, PatchCollection)
        corners = [(path.get_extents().p0 + 0.5).astype(int) for path in drawn.get_paths()]
        lines = [line for line in bias.of("cross", 0) if line.head == head]
        on_lines = {cell for line in lines for cell in zip(*cells_of(line, bench.batch.layout), strict=True)}
        expected = sorted(weights[cell] for cell in on_lines)
        np.testing.assert_allclose(sorted(shown[y, x] for x, y in corners), expected, rtol=1e-5)
    dense = bias.dense(bench.parent.spec.sampler.layout(12), "cross", 0, bias.heads)
    assert np.isnan(cells(figure, 1)).sum() == (~dense.isfinite()).sum()
    assert f"{len(bias.lines)} lines, {len(bias.of('cross', 0))} of them in this map" in text
