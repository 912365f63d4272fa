"""Attention analysis against naive loops and a model whose attention is known."""

import numpy as np
import pytest
import torch

from abc_nb.analysis import attention
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task
from abc_nb.runs.store import Run
from abc_nb.show import plots
from abc_nb.training.evaluation import attention_of, greedy
from audit.measures import weakest_operand

TASKS = ("successor", "addition", "n-by-1")


def uniform_model(task: Task) -> Transformer:
    """Queries and keys are zero: every open key gets the same attention."""
    model = Transformer(ModelConfig(width=16, heads=2, feed_forward=16), len(task.vocabulary))
    for name, parameter in model.named_parameters():
        if ".query." in name or ".key." in name:
            torch.nn.init.zeros_(parameter)
    return model


def batch_of(name: str, length: int = 8) -> tuple[Task, Batch]:
    return Task(name), Sampler(Task(name)).test_batch(length, 20, 0)


@pytest.mark.parametrize(
    ("name", "columns"),
    [*zip(TASKS, [[[5, 4, 3, 2, 1]], [[5, 4, 3, 2, 1], [11, 10, 9, 8, 7]], [[5, 4, 3, 2, 1], [7] * 5]], strict=True)],
)
def test_needed_cells_hold_the_digits_of_the_place(name: str, columns: list[list[int]]) -> None:
    layout = Task(name).layout(5)
    needed = [set(row.nonzero().flatten().tolist()) for row in attention.needed(layout, "cross")]
    assert needed == [*map(set, zip(*columns, strict=True)), set()]
    assert torch.equal(attention.needed(layout, "self"), torch.eye(layout.target_length, dtype=torch.bool))


@pytest.mark.parametrize("name", TASKS)
def test_mass_of_uniform_attention_is_the_share_of_needed_keys(name: str) -> None:
    task, batch = batch_of(name)
    frame = attention.masses(attention_of(uniform_model(task), batch).weights, batch.layout, trained=6)
    cross, own = (frame[frame.attention == which] for which in ("cross", "self"))
    np.testing.assert_allclose(cross[["inside", "beyond"]], len(batch.layout.operands) / batch.layout.source_length)
    by_step = 1 / np.arange(1, batch.layout.width + 1)
    np.testing.assert_allclose(own.inside, by_step[:6].mean(), rtol=1e-5)
    np.testing.assert_allclose(own.beyond, by_step[6:].mean(), rtol=1e-5)


def test_of_two_operands_the_one_that_is_looked_at_less_decides() -> None:
    """Uniform attention is the same for both; without the first operand's weights nothing is left."""
    task, batch = batch_of("addition")
    weights = attention_of(uniform_model(task), batch).weights
    np.testing.assert_allclose(weakest_operand(weights, batch.layout), 1 / batch.layout.source_length)
    closed = torch.ones(batch.layout.source_length)
    closed[batch.layout.operands[0].columns] = 0.0
    cross = {where: own * closed for where, own in weights.items() if where[0] == "cross"}
    assert (weakest_operand(cross, batch.layout) == 0).all()


def test_a_heat_map_shows_the_weights_to_the_end_of_the_answer_and_marks_wrong_tokens() -> None:
    weights, needed = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]), np.eye(3, 2, dtype=bool)
    head = attention.HeadMap("title", weights, ["$", "3"], ["1", "&", "&"], [True, False, True], needed)
    axis = plots.attention_maps([head]).axes[0]
    np.testing.assert_array_equal(np.asarray(axis.images[0].get_array()), weights[:2])
    assert [label.get_text() for label in axis.get_xticklabels()] == ["$", "3"]
    assert [label.get_color() == "tab:red" for label in axis.get_yticklabels()] == [False, True]


@pytest.fixture
def study(vanilla: Run) -> attention.AttentionStudy:
    return attention.AttentionStudy(vanilla, length=10, samples=20)


def test_an_example_is_decoded_with_zeros_in_front(study: attention.AttentionStudy) -> None:
    decoded, task = study.example("078114514+0241919810"), study.run.spec.task
    batch = study.run.spec.sampler.typed_batch("078114514+0241919810")
    assert "".join(decoded.source) == "$00078114514+00241919810&"
    assert "".join(decoded.expected) == f"{78114514 + 241919810:011d}"[::-1] + "&"
    said = greedy(study.model, batch.source, batch.layout, task.token(SOS))[0]
    assert decoded.outputs == task.text(said.tolist())
    assert decoded.inputs == [SOS, *decoded.outputs[:-1]]
    assert decoded.right == [a == b for a, b in zip(decoded.outputs, decoded.expected, strict=True)]
    for weights in decoded.weights.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_best_heads_are_those_with_most_mass_at_the_training_length(study: attention.AttentionStudy) -> None:
    known = study.trained_masses
    for row in study.best_heads().to_dict("records"):
        part = known[(known.attention == row["attention"]) & (known.layer == row["layer"] - 1)].set_index("head")
        assert part.inside[row["head"] - 1] == part.inside.max() == row["6 digits"]
    for name, head in zip(("cross", "self"), study.best_maps(study.example("123+456"), "cross", "self"), strict=True):
        ranked = study.ranked_heads(name)  # type: ignore[arg-type]
        assert head.title == f"{name}-attention, layer {ranked[0][0] + 1}, head {ranked[0][1] + 1}"
        inside = known[known.attention == name].set_index(["layer", "head"]).inside
        assert inside[ranked].to_list() == sorted(inside, reverse=True)
