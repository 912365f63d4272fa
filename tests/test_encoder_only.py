"""The encoder that writes a sum at once: its tokens, and its vectors on values."""

import torch

from abc_nb.problems.sampling import generator
from audit import encoder_only
from audit.encoder_only import ASKED, EMPTY, EQUALS, PLUS, ROOM, OnValues, SharedEncoder, sums


def number(digits: list[int]) -> int:
    return int("".join(str(digit) for digit in digits if digit != EMPTY))


def test_answers_are_the_sums_of_the_numbers_that_stand_there() -> None:
    tokens, answers = sums(generator(0, 0), (1, ROOM), 200)
    lengths = set[int]()
    for row, answer in zip(tokens.tolist(), answers.tolist(), strict=True):
        a, plus, b, equals = row[:ROOM], row[ROOM], row[ROOM + 1 : 2 * ROOM + 1], row[2 * ROOM + 1]
        assert (plus, equals, row[2 * ROOM + 2 :]) == (PLUS, EQUALS, [ASKED] * (ROOM + 1))
        assert number(a) + number(b) == number(answer) and len(answer) == ROOM + 1
        lengths.add(len(str(number(a))))
    assert {1, 2, ROOM} <= lengths


def test_vectors_on_keys_and_values_are_added_as_a_loop_adds_them() -> None:
    torch.manual_seed(0)
    attention = OnValues(encoder_only.CONFIG).eval()
    x, index = torch.randn(1, 5, encoder_only.CONFIG.width), torch.arange(5)
    query, (key, value) = attention.split(attention.query(x))[0], attention.keys_values(x, index)
    on_keys, clip = attention.state_dict()["position.table"], attention.clip
    mixed = torch.zeros_like(query)
    for head in range(len(query)):
        for i in range(5):
            near = [j - i + clip for j in range(5)]
            scores = [query[head, i] @ (key[0, head, j] + on_keys[near[j]]) for j in range(5)]
            weights = (torch.stack(scores) / query.shape[-1] ** 0.5).softmax(0)
            mixed[head, i] = sum(weights[j] * (value[0, head, j] + attention.near[near[j]]) for j in range(5))
    expected = attention.out(mixed.transpose(0, 1).flatten(1))[None]
    torch.testing.assert_close(attention.attend(x, (key, value), None, (index, index)), expected)


def test_it_goes_through_one_layer_and_knows_what_is_asked() -> None:
    torch.manual_seed(0)
    model, (tokens, _) = SharedEncoder(values=False), sums(generator(0, 0), (1, 3), 4)
    assert len([name for name, _ in model.named_parameters() if "query.weight" in name]) == 1
    assert model(tokens).shape == (4, 3 * ROOM + 3, 14)
    assert not torch.equal(model(tokens), model(tokens.flip(1)).flip(1)), "order counts"
