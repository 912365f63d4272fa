"""The attention explorer as a widget."""

from __future__ import annotations

from html import escape

import ipywidgets as w

from abc_nb.analysis.attention import AttentionStudy
from abc_nb.common.errors import InputError
from abc_nb.experiments.experiment import experiment, train_command
from abc_nb.runs.store import find
from abc_nb.show.explorers import attention as logic
from abc_nb.show.explorers.parts import Explorer, choice, line, or_sorry, picture, slider


def explore_attention(
    name: str = "addition-abc", problem: str | None = None, seed: int = 0, profile: str = "quick"
) -> Explorer:
    """Type a problem, step through its decoding, and see what a trained model looks at.

    `name` is the model to begin with (others of its task can be chosen), `problem` what it is asked first.
    """
    return or_sorry(lambda: AttentionExplorer(name, problem, seed, profile))


class AttentionExplorer(Explorer):
    """A problem, a model, a head and a step; the digits, and the attention that made them."""

    def __init__(self, name: str, problem: str | None, seed: int, profile: str) -> None:
        super().__init__()
        self.seed, self.profile = seed, profile
        known = logic.models(name, seed, profile)
        if name not in known:
            raise InputError(f"the weights of {name} are not here: run `{train_command(name, seed, profile)}` first")
        problem = problem or experiment(name, profile).task.problem
        self.asked: logic.Asked | None = None  # until a problem has been read
        self.problem = w.Text(
            value=problem, description="problem", continuous_update=False, layout=w.Layout(width="340px")
        )
        self.model = choice("model", known, name, 270)
        self.attention = choice("attention", ["cross", "self"], "cross", 180)
        self.layer = slider("layer", 1, 1, 1, 220)
        self.head = slider("head", 1, 1, 1, 280)
        self.step = slider("step", 1, 1, 1, 300)
        self.mark = w.Checkbox(True, description="mark the needed cells □", indent=False)
        self.answer, self.digits, self.facts = line(32), line(96), line(28)
        self.map = picture(logic.SIZE)
        self.lay_out()
        self.on(self.take_model, self.model)
        self.on(self.take_problem, self.problem)
        self.on(self.take_attention, self.attention)
        self.on(self.redraw, self.layer, self.head, self.step, self.mark)
        self.attempt(self.take_model)

    def lay_out(self) -> None:
        what = w.HBox([self.problem, self.model, self.step])
        where = w.HBox([self.attention, self.layer, self.head, self.mark])
        self.children = [what, where, self.message, self.answer, self.digits, self.facts, self.map]

    def take_model(self) -> None:
        """Another model: its sizes, its best head, and the same problem again."""
        run = find(experiment(self.model.value, self.profile), self.seed)
        if run is None:
            command = train_command(self.model.value, self.seed, self.profile)
            raise InputError(f"{self.model.value} is not here any more: run `{command}`")
        self.study = AttentionStudy(run, samples=100)
        self.layer.max, self.head.max = run.experiment.model.decoder_layers, run.experiment.model.heads
        self.choose_head()
        self.take_problem()

    def choose_head(self) -> None:
        layer, head = self.study.ranked_heads(self.attention.value)[0]
        self.layer.value, self.head.value = layer + 1, head + 1

    def take_attention(self) -> None:
        self.choose_head()
        self.redraw()

    def take_problem(self) -> None:
        """Decode the problem; shown as a whole at first."""
        self.asked = None
        self.asked = logic.ask(self.study, self.problem.value)
        self.step.max = len(self.asked.digits)
        self.step.value = self.step.max
        self.redraw()

    def redraw(self) -> None:
        if self.asked is None:
            return
        place = (self.attention.value, self.layer.value - 1, self.head.value - 1, self.step.value - 1)
        self.answer.value = (
            f'<b class="abc-answer" style="font-size:16px;white-space:nowrap">{escape(logic.verdict(self.asked))}</b>'
        )
        self.digits.value = logic.digits_table(self.asked, place[3])
        self.facts.value = f'<span class="abc-step">{escape(logic.step_sentence(self.asked, *place))}</span>'
        self.draw(self.map, logic.attention_figure(self.asked, *place, mark=self.mark.value))
