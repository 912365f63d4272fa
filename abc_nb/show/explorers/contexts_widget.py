"""The explorer of contexts as a widget."""

from __future__ import annotations

from html import escape

import ipywidgets as w

from abc_nb.show.explorers import contexts as logic
from abc_nb.show.explorers.parts import Explorer, choice, line, or_sorry, picture, slider

OWN = "as chosen above"


def explore_contexts(name: str = "n-by-1-window-cyclic", seed: int = 2) -> Explorer:
    """Digits, carry and residue as controls: logits, margin and attention there; and each wrong context in turn.

    `name` and `seed` say which of the models with a certificate to begin with.
    """
    return or_sorry(lambda: ContextExplorer(name, seed))


class ContextExplorer(Explorer):
    """A context in the middle of a problem, and what the model does in it."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__()
        run, known = logic.chosen(name, seed), logic.models(name)
        if (run.experiment.name, seed) not in known.values():
            raise logic.no_certificate(run)
        self.model = choice("model", [*known.items()], (run.experiment.name, seed), 460)
        self.wrong = choice("wrong context", [(OWN, 0)], 0, 440)
        self.box, self.answer = w.HBox(), line(28)
        self.map = picture(logic.SIZE)
        self.children = [w.HBox([self.model, self.wrong]), self.box, self.message, self.answer, self.map]
        self.on(self.take_model, self.model)
        self.on(self.redraw, self.wrong)
        self.attempt(self.take_model)

    def take_model(self) -> None:
        """Another model: its operands, carries, residues and wrong contexts."""
        self.contexts = logic.Contexts(logic.chosen(*self.model.value))
        rules, most = self.contexts.rules, self.contexts.rules.base - 1
        names = logic.OPERANDS[: rules.digits.shape[1]]
        self.here = [slider(f"{name} here", most, 0, most, 220) for name in names]
        self.below = [slider(f"{name} below", 0, 0, most, 220) for name in names]
        self.factor = [slider("factor", most, 0, most, 220)] * rules.factor.shape[1]
        self.carry = choice("carry into below", self.contexts.carries, self.contexts.carries[0], 200)
        self.residue = slider("residue", 0, 0, self.contexts.period - 1, 200)
        around = [*self.here, *self.below, *self.factor]
        self.box.children = [w.VBox([w.HBox(around), w.HBox([self.carry, self.residue])])]
        self.on(self.take_choice, *around, self.carry, self.residue)
        shown = [(f"{text}, output {step}", number) for number, (text, step) in enumerate(self.contexts.wrong, 1)]
        self.wrong.options = [(OWN, 0), *shown]
        self.wrong.value = min(1, len(shown))
        self.redraw()

    def take_choice(self) -> None:
        self.wrong.value = 0
        self.redraw()

    def redraw(self) -> None:
        seen = self.contexts.at_wrong(self.wrong.value - 1) if self.wrong.value else self.contexts.at(self.chosen)
        self.answer.value = f'<b class="abc-answer" style="font-size:16px">{escape(logic.sentence(seen))}</b>'
        self.draw(self.map, logic.figure(seen))

    @property
    def chosen(self) -> logic.Choice:
        here, below = (tuple(each.value for each in digits) for digits in (self.here, self.below))
        factor = self.factor[0].value if self.factor else 0
        return logic.Choice(here, below, factor, self.carry.value, self.residue.value)
