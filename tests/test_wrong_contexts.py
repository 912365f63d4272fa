"""The list of what models of the pair window get wrong before practice."""

import pandas as pd
import torch

from abc_nb.model.eight_bits import round_weights
from abc_nb.runs import store
from abc_nb.specs.spec import spec
from abc_nb.training.evaluation import answers
from audit import wrong_contexts


def test_the_list_of_a_shipped_model_is_complete_and_its_problems_are_answered_so() -> None:
    """As many as practice found; the model answers each problem as the list says, and Python otherwise."""
    name = "n-by-1-abs"
    run, practised = store.with_weights(spec(f"{name}-unpractised"), 0), store.find(spec(name), 0)
    assert run is not None and practised is not None
    with torch.inference_mode():
        wrong = pd.DataFrame(wrong_contexts.wrong(run))
    listed = pd.read_csv(wrong_contexts.FILE, dtype=str).query(
        "task == 'n-by-1' and positions == 'none' and seed == '0'"
    )
    assert len(wrong) == len(listed) == practised.facts["practice"]["wrong_before"]
    assert sorted(wrong.context) == sorted(listed.context) and (wrong.margin < 0).all()
    model = run.model()
    round_weights(model)
    rows = wrong[["problem", "answer", "right"]].to_numpy().tolist()
    for (problem, answer, right), said in zip(rows, answers(model, run.spec.sampler, wrong.problem), strict=True):
        first, second = map(int, problem.split("*"))
        assert said == answer != right == str(first * second)
