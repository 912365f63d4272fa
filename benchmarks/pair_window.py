"""The window read as the pair of a place: train, certify, list the wrong contexts, practise; `python pair_window.py`.

One process; what is finished stays in `runs`, so that it goes on where it stopped. The two tables in `results` are
written anew after every model.
"""

import sys
import time
from itertools import product

import numpy as np
import pandas as pd
import torch

from abc_nb.certificates import certify, files
from abc_nb.certificates.counterexamples import Candidate, decoded
from abc_nb.certificates.rounding import Exact
from abc_nb.certificates.states import States
from abc_nb.common import paths
from abc_nb.problems.tasks import single
from abc_nb.runs import runner, store
from abc_nb.specs.spec import SEEDS, Spec, spec

LENGTHS = (6, 10, 20, 60, 200)
BINARY, UNARY = ("addition", "n-by-1"), ("successor", "parity")
PARTS = [  # what is asked first is trained first: positions, tasks, seeds
    ("none", BINARY, SEEDS),
    ("none", UNARY, SEEDS),
    ("mod3", BINARY, SEEDS[:3]),
    ("plain", BINARY, SEEDS[:2]),
    ("mod3", BINARY, SEEDS[3:]),
    ("plain", BINARY, SEEDS[2:]),
    ("mod3", UNARY, SEEDS),
    ("plain", UNARY, SEEDS),
]
JOBS = [(task, index, seed) for index, tasks, seeds in PARTS for seed, task in product(seeds, tasks)]
certify.WRONG = 5000  # wrong contexts of a shape that are listed


def described(contexts, shape, values, site):
    """A context's tokens in words: places are counted from the one that is asked for."""
    kept, words = contexts.step(site)[2], []
    for (kind, number, place), value in zip(shape.atoms, values.tolist(), strict=True):
        name = {"factor": "factor", "output": "out"}.get(kind) or "ab"[number]
        words.append(
            name + ("" if kind == "factor" else f"[{kept[place] - site[1]}]") + f"={vocabulary(contexts)[value]}"
        )
    return " ".join(words)


def vocabulary(contexts):
    return list(contexts.task.vocabulary)


def shortest(contexts, shape, context):
    """The narrowest problem that holds a context, as in `candidates`, and where in it."""
    for zeros, site in product((False, True), contexts.shapes[shape]):
        operands = contexts.problem(shape, context, site, zeros)
        if operands is not None:
            return site, Candidate(site[0], operands, zeros and single(site[0]) > contexts.narrowest)
    return None, None


def listed(own: Spec, seed: int, model, contexts, results) -> pd.DataFrame:
    rows = []
    for each in results:
        for context in each.examples:
            values, right = context
            with torch.inference_mode():
                logits = States(Exact(model), each.shape.atoms).take(values[None]).logits(each.shape.root)[0].double()
            other = logits.clone()
            other[right] = -np.inf
            said = int(other.argmax())
            site, candidate = shortest(contexts, each.shape, context)
            row = {"task": own.task.name, "positions": index_of(own), "seed": seed}
            row |= {"context": "", "right": vocabulary(contexts)[right], "model": vocabulary(contexts)[said]}
            row["margin"] = round(float(logits[right] - other[said]), 4)
            if candidate is not None:
                shown = decoded(model, own.sampler, [candidate])
                row["context"] = described(contexts, each.shape, values, site)
                row["problem"] = own.task.typed(candidate.operands, candidate.zeros)
                row["zeros_in_front_needed"] = candidate.zeros
                row["decoded_wrong"] = bool(shown)
                row["answer"], row["right_answer"] = (shown[0].answer, shown[0].right) if shown else ("", "")
            rows.append(row)
    return pd.DataFrame(rows)


def index_of(own: Spec) -> str:
    return own.identity.model.split("-")[1]


def study(task: str, index: str, seed: int) -> None:
    own = spec(f"{task}-pair-{index}-unpractised")
    start = time.perf_counter()
    run = runner.ensure(own, seed)
    accuracy = run.evaluation().set_index("length").accuracy
    print(
        own.name,
        seed,
        [round(float(accuracy[length]), 4) for length in LENGTHS],
        f"{time.perf_counter() - start:.0f} s",
    )
    path = files.path_of(files.name_of(own.name, seed, own.profile))
    if index == "plain" or path.exists():  # an index without a period has no finite list of contexts
        return
    start, model = time.perf_counter(), run.model()
    contexts = certify.contexts_of(model, own.sampler)
    found, certificate = certify.attempt(model, contexts)
    print("   ", certificate, f"{time.perf_counter() - start:.0f} s", flush=True)
    if certificate.wrong:
        frame = listed(own, seed, model, contexts, found)
        (paths.runs() / "contexts").mkdir(exist_ok=True)
        frame.to_csv(paths.runs() / "contexts" / f"{path.stem}.csv", index=False)
        print("    listed", len(frame), f"{time.perf_counter() - start:.0f} s", flush=True)
    files.write(certificate, own.name, seed, own.profile)


def practise(task: str, index: str, seed: int) -> None:
    """Of a model with wrong contexts; what is certified is left as it is."""
    own, start = spec(f"{task}-pair-{index}-unpractised"), time.perf_counter()
    found = files.made_here().get(files.name_of(own.name, seed, own.profile))
    if found is not None and found["wrong"]:
        practised = runner.ensure(spec(f"{task}-pair-{index}"), seed)
        print("practised", own.name, seed, practised.manifest["practice"], f"{time.perf_counter() - start:.0f} s")


def tables() -> None:
    rows, certificates = [], files.made_here()
    for task, index, seed in JOBS:
        own = spec(f"{task}-pair-{index}-unpractised")
        run = store.find(own, seed, ("runs",))
        if run is None:
            continue
        accuracy = run.evaluation().set_index("length").accuracy
        row = {"task": task, "positions": index, "seed": seed, "validation": run.validation}
        row |= {f"accuracy_{length}": accuracy[length] for length in LENGTHS}
        if found := certificates.get(files.name_of(own.name, seed, own.profile)):
            row |= {name: found[name] for name in ("contexts", "wrong", "margin", "certified")}
        after = spec(f"{task}-pair-{index}")
        if practised := store.find(after, seed, ("runs",)):
            last = certificates[files.name_of(after.name, seed, after.profile)]
            accuracy = practised.evaluation().set_index("length").accuracy
            row |= {"practice_rounds": practised.manifest["practice"]["rounds"]}
            row |= {f"practised_{name}": last[name] for name in ("wrong", "margin", "certified")}
            row |= {f"practised_accuracy_{length}": accuracy[length] for length in LENGTHS}
        rows.append(row)
    frame = pd.DataFrame(rows)
    frame = frame.astype({name: "Int64" for name in frame if name.split("_")[-1] in ("contexts", "wrong", "rounds")})
    frame.to_csv(paths.RESULTS / "pair_window.csv", index=False)
    lists = [pd.read_csv(path, dtype=str) for path in sorted((paths.runs() / "contexts").glob("*.csv"))]
    if lists:
        pd.concat(lists).to_csv(paths.RESULTS / "pair_window_contexts.csv", index=False)


if __name__ == "__main__":
    for each, job in product((study, practise), JOBS):
        each(*job)
        tables()
        sys.stdout.flush()
