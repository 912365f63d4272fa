"""Linear maps as they are fastest for many states, and on several threads."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# None where PyTorch was built without it
ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
T = TypeVar("T")


class Map(NamedTuple):
    """A linear map."""

    weight: Tensor
    bias: Tensor


def in_threads(threads: int, step: Callable[[Tensor], T], parts: Sequence[Tensor]) -> Iterator[T]:
    """What a step makes of each part, in order; on several threads without gradients."""
    if min(threads, len(parts)) == 1:
        yield from map(step, parts)
    else:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(torch.inference_mode()(step), parts)


def heads_last(linear: nn.Linear, heads: int, given: bool = False) -> Map:
    """The same map with the first numbers of all heads first: those that it gives, or those that it is `given`.

    So all heads are computed together: see `few_keys`.
    """
    order = torch.arange(linear.out_features, device=linear.weight.device).view(heads, -1).T.flatten()
    weight, bias = (linear.weight[:, order], linear.bias) if given else (linear.weight[order], linear.bias[order])
    return Map(weight, bias)


def product(linear: nn.Linear | Map, x: Tensor, then: Literal["none", "relu"] = "none") -> Tensor:
    """`linear(x)`, by oneDNN where no gradient is asked for: on some processors it is twice as fast in float32."""
    weight, plain = linear.weight, type(linear) in (nn.Linear, Map) and torch.is_inference_mode_enabled()
    if plain and ONEDNN is not None and weight.dtype == torch.float32 and weight.device.type == "cpu":
        made: Tensor = ONEDNN(x, weight, linear.bias, then, [], "")
        return made
    made = linear(x) if isinstance(linear, nn.Linear) else F.linear(x, weight, linear.bias)
    return made if then == "none" else made.relu_()
