"""From a rule to a model that is proven: one call for a reader's task, which is registered nowhere."""

from dataclasses import dataclass, replace

from abc_nb.bias.lines import Lines
from abc_nb.calibration.calibrate import Determining
from abc_nb.certificates.certify import Certificate
from abc_nb.certificates.contexts import Contexts
from abc_nb.certificates.fingerprints import determined
from abc_nb.certificates.practice import contexts_to_practise, practise
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.automaton import certified_automaton
from abc_nb.problems.rules import Rule
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task, Width, width_pair
from abc_nb.runs.trainings import calibrate_lines
from abc_nb.specs.spec import Spec, specify_task
from abc_nb.training.evaluation import answers
from abc_nb.training.problems import train

# A token in one row follows from what one layer sees, as a cell of a table does.
IN_ONE_ROW = ("model.decoder_layers=1", "training.batch=32", "training.held_batch=32", "training.validation=512")
FEW_CONTEXTS = 10**6  # of which it takes seconds to find whether each has one right token


@dataclass(frozen=True)
class Taught:
    """A model that was trained on a rule, and what its certificate says."""

    model: Transformer
    sampler: Sampler
    certificate: Certificate
    wrong: tuple[int, ...]  # contexts that were wrong before practice, and after each round

    def answer(self, problem: str, trace: bool = False) -> str:
        """What the model answers to a typed problem; with `trace` the table that it wrote comes first."""
        return next(answers(self.model, self.sampler, [problem], trace))


def spec_of(rule: Rule) -> Spec:
    """The spec of a rule's model: a Transformer of one layer, each head of which sees one token.

    In a table these are the tokens that the rule reads; in one row each operand's token at this place and at the one
    below. The token written last is the query's own, and needs no head. InputError for a rule that can have no
    certificate.
    """
    if not rule.table:
        certified_automaton(rule).settled()  # so that it is refused before it is trained
    name, changes = ("abs-unpractised", ()) if rule.table else ("decoder-abs-unpractised", IN_ONE_ROW)
    spec = specify_task(Task.of(rule), name, "quick", changes)
    assert isinstance(spec.model.bias, Lines)
    lines = tuple(line for line in spec.model.bias.lines if rule.table or line.attention != "self")
    return replace(spec, model=spec.config_under(replace(spec.model.bias, lines=lines)))


@dataclass(frozen=True)
class Widest(Sampler):
    """Problems of the largest training size alone.

    The cells of a small table follow from its first row, and a plain model may learn that instead of the rule.
    """

    @property
    def widths(self) -> tuple[Width, ...]:
        return (max(super().widths, key=width_pair),)


def plain_model(spec: Spec, seed: int) -> tuple[Transformer, Batch]:
    """A plain model of a spec's task, trained on its largest size, and problems to average its attention over."""
    plain = specify_task(spec.task, "vanilla", "quick")
    sampler = Widest(spec.task, width_count=spec.sampler.width_count)
    model = plain.build(seed)
    train(model, sampler, plain.training, seed)
    return model, sampler.calibration_batch(seed)


def read_out(spec: Spec, model: Transformer, batch: Batch) -> Lines:
    """The lines of a plain model's attention, the fewest that determine every token (ABC); InputError if none do."""
    calibrated = calibrate_lines(spec, model, batch, Determining())
    if not calibrated.skill:
        raise InputError(f"the lines of a plain model do not determine {spec.task.title}: take another seed, or ABS")
    return calibrated.bias


def check_learnable(contexts: Contexts, rule: Rule) -> None:
    """InputError, before a training in vain, where the tokens that are seen do not decide the one that follows."""
    if sum(contexts.counts.values()) <= FEW_CONTEXTS and not determined(contexts):
        raise InputError(
            f"no model can learn {rule.name}: what a token can look at does not decide it. In one row that is what "
            "stands at its place and at the one below, and the token before, so let the rule write its state"
        )


def teach(rule: Rule, seed: int = 0, steps: int = 1000, rounds: int = 9, by_hand: bool = True) -> Taught:
    """Train a small Transformer on short problems of a rule, and on what it gets wrong, until it is certified.

    Its bias is made by hand (`spec_of`), or read out of a plain model that is trained first (`read_out`), which takes
    minutes. There are at most so many `steps` of training and `rounds` of practice. The certificate says whether that
    was enough. InputError for a rule that can have no certificate, or whose lines could not be read.
    """
    numbers = (seed, steps, rounds)
    if not isinstance(rule, Rule) or not all(isinstance(n, int) for n in numbers) or min(seed, steps - 1, rounds) < 0:
        raise InputError("give a Rule, a seed from 0 on, a step of training or more, and no round of practice or more")
    spec = spec_of(rule)
    if not by_hand:
        spec = replace(spec, model=spec.config_under(read_out(spec, *plain_model(spec, seed))))
    training = replace(spec.training, steps=steps, hold=max(1, steps // 2))
    practice = replace(training.slower(), steps=100, warmup=10, hold=20)
    contexts = contexts_to_practise(spec.model, spec.sampler, practice, rounds)
    check_learnable(contexts, rule)
    model = spec.build(seed)
    train(model, spec.sampler, training, seed)
    result = practise(model, spec.sampler, practice, seed, rounds, contexts=contexts)
    return Taught(model.eval(), spec.sampler, result.certificates[0], tuple(result.wrong))
