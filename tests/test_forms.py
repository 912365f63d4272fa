"""Differences and comparisons are forms of the reader like sums: read, enumerated, and certified in a text."""

import pytest
from test_contexts import met, problems_in_a_text, tried

from abc_nb import InputError, Task
from abc_nb.bias.lines import keys_of, of_keys
from abc_nb.bias.spans import ITSELF
from abc_nb.certificates.spans import SpanContexts
from abc_nb.problems.spans import Pattern, plainly
from audit.rules.more import comparison, division

DIFFERENCE, COMPARISON = Pattern(Task("subtraction"), "{a}-{b}="), Pattern(Task.of(comparison()), "{a}?{b}=")
SMALL = Pattern(Task("subtraction", 2), "{a}-{b}="), Pattern(Task.of(comparison(3)), "{a}?{b}=")


def test_they_are_read_as_people_write_them() -> None:
    """A number is taken from no smaller one; a comparison's answer, in its last digit, is 0: equal, 1: smaller."""
    text = "so 34 - 12 = and 1,000-999=, but 12-34= and 7-0012= are none, 5-5= is one, and 7 ? 12 ="
    read = plainly(text, [DIFFERENCE, COMPARISON])
    assert read == "so 34-12= and 1000-999=, but 12-34= and 7-0012= are none, 5-5= is one, and 7?12="
    assert DIFFERENCE.task.said(DIFFERENCE.answer(["1000", "999"])) == "1"
    pairs = ["7", "12"], ["12", "7"], ["12", "012"]
    assert [COMPARISON.task.said(COMPARISON.answer(pair)) for pair in pairs] == ["1", "2", "0"]
    with pytest.raises(InputError, match="cannot be written into a text"):
        Pattern(Task.of(division()), "{a}/{b}=")


@pytest.mark.parametrize("pattern", SMALL, ids=lambda pattern: pattern.task.name)
def test_all_that_is_tried_is_met_in_small_problems_and_the_other_way_round(pattern: Pattern) -> None:
    """Where the first number must be larger, all others are tried as well."""
    contexts = SpanContexts(of_keys(keys_of(pattern.layout((4, 4)), 2), ITSELF, 4, 1), 1, pattern)
    assert met(contexts, problems_in_a_text(pattern, 5 if pattern.task.base == 2 else 4)) == tried(contexts)
    assert contexts.determined()
