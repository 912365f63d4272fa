"""Repair: what is wrong is practised with numbers of training alone, until a certificate finds nothing wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import integers

import abc_nb
from abc_nb import InputError, cli
from abc_nb.certificates import files
from abc_nb.certificates.certify import certify_model, try_model, weights_of
from abc_nb.certificates.checksum import checksum
from abc_nb.certificates.practice_problems import practice
from abc_nb.certificates.repair import Repair
from abc_nb.experiments.experiment import Experiment, experiment
from abc_nb.model.transformer import Transformer
from abc_nb.problems.digits import fit
from abc_nb.problems.sampling import Batch, Sampler, make_batch
from abc_nb.problems.tasks import Task
from abc_nb.runs import runner, store
from abc_nb.training.progress import Progress, TrainingConfig

NAME = "parity-window-cyclic-repaired"
CONFIG = TrainingConfig(
    steps=30, batch=32, held_batch=32, warmup=2, hold=3, learned=2.0, validate_every=5, validation=30
)
ROUNDS = 3


class Watched(Repair):
    """Notes every number that it trains on."""

    numbers: set[int]

    def gradients(self, batch: Batch, phase: torch.Tensor | int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.arange(len(batch.source))
        found = integers(batch.operands(rows, self.sampler.task)[0], self.sampler.task.base)
        self.numbers = {*found, *getattr(self, "numbers", ())}
        return super().gradients(batch, phase)


def damaged(name: str = "parity-window-cyclic", noise: float = 0.5) -> tuple[Transformer, Sampler]:
    """A shipped model that is certified, after noise on its weights: it is not any more."""
    run = abc_nb.load(name)
    model = run.model()
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(noise * torch.randn_like(weights) * weights.std(correction=0))
    return model, run.experiment.sampler


def repaired(
    model: Transformer, sampler: Sampler, config: TrainingConfig = CONFIG, path: Path | None = None
) -> Watched:
    repair = Watched(model, sampler, config, seed=0, rounds=ROUNDS)
    repair.run(path)
    return repair


def test_a_model_made_wrong_is_repaired_with_numbers_of_training_alone() -> None:
    model, sampler = damaged()
    before = certify_model(model, sampler)
    assert before.wrong > 0
    repair = repaired(model, sampler)
    after = certify_model(model, sampler)
    assert after.certified and after.wrong == 0
    assert repair.facts["wrong_before"] == before.wrong and repair.facts["wrong_after"] == 0
    assert repair.facts["certified"] and 1 <= repair.facts["rounds"] <= ROUNDS
    assert 0 < max(repair.numbers) <= 2**20
    assert repair.progress.step == 10 * repair.facts["rounds"]
    assert [row["step"] for row in repair.progress.history] == [*range(0, repair.progress.step + 1, 5)]


def test_a_certified_model_is_left_as_it_is() -> None:
    run = abc_nb.load("parity-window-cyclic")
    model, before = run.model(), checksum(weights_of(run.model()))
    repair = repaired(model, run.experiment.sampler)
    assert repair.progress.step == 0 and len(repair.progress.history) == 1
    assert checksum(weights_of(model)) == before
    assert repair.facts["rounds"] == 0 and repair.facts["certified"]


@pytest.mark.slow
def test_what_is_not_repaired_is_said() -> None:
    """Without a rate nothing changes; the rounds end."""
    model, sampler = damaged()
    repair = repaired(model, sampler, replace(CONFIG, learning_rate=1e-30, matrix_learning_rate=1e-30))
    facts = repair.facts
    assert facts["rounds"] == ROUNDS and not facts["certified"]
    assert facts["wrong_before"] == facts["wrong_after"] > 0 and facts["named"]


@pytest.mark.slow
def test_a_killed_round_goes_on_where_it_was(tmp_path: Path) -> None:
    first, sampler = damaged()
    whole = repaired(first, sampler)

    def stop(progress: Progress) -> None:
        if progress.step == 7:
            raise KeyboardInterrupt

    second, path = damaged()[0], tmp_path / "checkpoint.safetensors"
    with pytest.raises(KeyboardInterrupt):
        Repair(second, sampler, CONFIG, seed=0, rounds=ROUNDS).run(path, stop)
    third = damaged()[0]
    again = repaired(third, sampler, path=path)
    assert checksum(weights_of(third)) == checksum(weights_of(first))
    assert again.facts == whole.facts


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["successor-window-cyclic", pytest.param("n-by-1-window-cyclic", marks=pytest.mark.long)]
)
def test_each_problem_that_is_practised_is_answered_wrong_somewhere_in_training(name: str) -> None:
    """At one of the training widths, with the index started somewhere."""
    model, sampler = damaged(name, 0.1)
    results = try_model(model, sampler)
    found, task = practice(model, sampler, results), sampler.task
    assert found.operands and len(found.operands[0]) + found.left == sum(each.wrong for each in results)
    wrong = torch.zeros(len(found.operands[0]), dtype=torch.bool)
    for width in sampler.widths:
        rows = torch.tensor([max(integers(row[None], 10)) < 10**width for row in found.operands[0]])
        like = [digits[:, :places] for digits, places in zip(found.operands, task.operand_places(width), strict=True)]
        batch = make_batch(task, fit(found.operands, like), width, sampler.arrangement)
        for phase in range(3):
            with torch.inference_mode():
                logits = model(batch.source, batch.target[:, :-1], batch.layout, phase=phase)
            wrong |= rows & (logits.argmax(-1) != batch.target[:, 1:]).any(1)
    assert wrong.all()
    assert max(max(integers(digits, 10)) for digits in found.operands) <= 2**20


def test_contexts_that_no_training_number_shows_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sampler = damaged()
    results = try_model(model, sampler)
    monkeypatch.setattr(Task, "training_limit", -1)
    found = practice(model, sampler, results)
    assert found.operands == [] and found.left == sum(each.wrong for each in results)


def test_lists_are_refused_and_so_are_rounds_without_a_step() -> None:
    model, sampler = damaged()
    with pytest.raises(InputError, match="cannot be repaired"):
        practice(model, Sampler(Task("listops-sm")), [])
    with pytest.raises(InputError, match="a step at least"):
        Repair(model, sampler, CONFIG, seed=0, rounds=31)


def small() -> Experiment:
    return replace(experiment(NAME), tests=((3, 10),))


def test_the_experiment_trains_its_parent_on() -> None:
    found = experiment("successor-window-cyclic-repaired")
    parent = experiment("successor-window-cyclic")
    assert found.parent == parent and found.warm and found.rounds > 0
    assert (found.sampler, found.model) == (parent.sampler, parent.model)
    assert (found.recipe, parent.recipe) == ("repaired", "plain")
    assert found.training.steps // found.rounds * found.rounds == found.training.steps <= parent.training.steps
    assert "rounds" not in parent.data


def test_a_run_of_a_certified_parent_has_no_steps_and_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path))
    run, parent = runner.ensure(small(), 1), abc_nb.load("parity-window-cyclic", 1)
    assert run.manifest["steps"] == 0 and run.validation == parent.validation
    assert checksum(weights_of(run.model())) == checksum(weights_of(parent.model()))
    assert run.manifest["repair"]["rounds"] == 0 and run.manifest["parent"]["run"] == parent.key
    assert store.find(small(), 1) is not None


@pytest.mark.slow
def test_a_certificate_of_a_repaired_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABC_NB_RUNS", str(tmp_path / "runs"))
    runner.ensure(small(), 1)
    path = tmp_path / "certificate.json"
    assert cli.main(["certify", NAME, "--seed", "1", "--output", str(path)]) == 0
    assert files.read(path)["recipe"] == files.REPAIRED
    assert cli.main(["certify", "--check", str(path)]) == 0
