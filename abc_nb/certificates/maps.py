"""Linear maps whose heads are computed together, and steps on several threads."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

T = TypeVar("T")


class Map(NamedTuple):
    """A linear map."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def heads_last(linear: nn.Linear, heads: int, given: bool = False) -> Map:
    """The same map with the first numbers of all heads first: those that it gives, or those that it is `given`.

    So all heads are computed together: see `few_keys`.
    """
    order = torch.arange(linear.out_features, device=linear.weight.device).view(heads, -1).T.flatten()
    weight, bias = (linear.weight[:, order], linear.bias) if given else (linear.weight[order], linear.bias[order])
    return Map(weight, bias)


def in_threads(threads: int, step: Callable[[Tensor], T], parts: Sequence[Tensor]) -> Iterator[T]:
    """What a step makes of each part, in order; on several threads without gradients."""
    if min(threads, len(parts)) == 1:
        yield from map(step, parts)
    else:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(torch.inference_mode()(step), parts)
