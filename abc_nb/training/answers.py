"""The model's answers to problems that a person typed."""

from collections.abc import Iterable, Iterator

from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import SOS
from abc_nb.problems.sampling import Sampler
from abc_nb.training.evaluation import greedy


def answers(model: Transformer, sampler: Sampler, expressions: Iterable[str], trace: bool = False) -> Iterator[str]:
    """The model's answers, in order, decoded greedily; zeros in front of a number are left out.

    With `trace` the table comes first that the model wrote. InputError for a task without one, or for a problem that
    cannot be read or has too many digits for the model.
    """
    task, device = sampler.task, model.head.weight.device
    for expression in expressions:
        operands = task.read(expression)
        width = task.width_of(operands, sampler.regime)
        batch = sampler.batch(task.widen(operands, width), width)
        tokens = greedy(model, batch.source.to(device), batch.layout, task.token(SOS))[0].tolist()
        table = task.written_table(tokens, batch.layout, operands) + "\n" if trace else ""
        yield table + task.write(tokens, batch.layout)
