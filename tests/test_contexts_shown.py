"""The contexts that notebook 7 shows: all of a small model, and those that a problem meets, against plain Python."""

import pytest

from abc_nb.analysis.contexts import contexts_met, every_context
from abc_nb.api import certify, load
from abc_nb.show import maps


def test_every_context_of_parity_is_shown_once_with_the_right_bit_and_the_certificates_margin() -> None:
    shown, certificate = every_context(load("parity-abs")), certify("parity-abs")
    assert len(shown) == certificate.contexts
    assert shown.margin.min() == pytest.approx(certificate.margin, abs=1e-4)
    for row in shown.to_dict("records"):
        if row["output"] == "end":
            assert row["writes"] == "&" and row["a"] == ""
        else:
            assert int(row["writes"]) == (int(row["a"]) + int(row["y-1"] or 0)) % 2
    panel, below = maps.contexts(shown).axes
    assert panel.get_images()[0].get_array().shape[1] == len(below.patches) == len(shown)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["addition-abc", "successor-abc"])
def test_contexts_that_a_problem_meets_hold_its_digits(name: str) -> None:
    numbers = [31415926, 27182818] if name.startswith("addition") else [31415926]
    right = str(sum(numbers) if len(numbers) == 2 else numbers[0] + 1)
    shown = contexts_met(load(name), "+".join(map(str, numbers)))
    assert list(shown.writes) == [*right[::-1], "0", "&"]
    assert (shown.margin > 0).all()
    for letter, number in zip("ab", numbers, strict=False):
        assert list(shown[letter])[: len(str(number))] == list(str(number)[::-1])
    assert list(shown["y-1"][1:]) == list(shown.writes[:-1])
