"""Language models side by side: ranges of losses, the worst problems, and what is certified."""

from typing import Any

from abc_nb.analysis.language import compared


def record(losses: list[float], right: dict[int, float], certified: list[bool] | None = None) -> dict[str, Any]:
    history = [{"step": 100 * (number + 1), "text": loss} for number, loss in enumerate(losses)]
    tests = [
        {"length": length, "accuracy": share, "task": task}
        for length, worst in right.items()
        for task, share in (("addition", worst), ("parity", 1.0))
    ]
    found = {
        "history": history,
        "trained": {"steps": 200},
        "evaluation": tests,
        "generated": {"problems": 3, "right": 2},
    }
    return found | ({"certificates": [{"certified": each} for each in certified]} if certified else {})


def test_a_row_has_the_range_of_losses_before_practice_and_the_worst_of_tasks_and_seeds() -> None:
    proven = [
        record([2.0, 1.5, 0.1], {6: 1.0, 60: 0.97, 1000: 0.2}, [True, True]),
        record([1.25, 1.75], {6: 0.99, 60: 1.0, 1000: 1.0}, [True, False]),
    ]
    table = compared({"text": [record([1.0], {})], "abs": proven})
    assert table.loc["abs"].to_dict() == {
        "loss": "1.250 to 1.500",
        "6 digits": "99",
        "60 digits": "97",
        "1,000 digits": "20",
        "in own text": "4 of 6",
        "certified": "1 of 2",
    }
    assert table.loc["text", ["loss", "6 digits", "certified"]].tolist() == ["1.000", "–", "–"]
