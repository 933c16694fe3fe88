"""What a network multiplies and adds: every operation of one pass is looked at as it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from typing_extensions import override

aten = torch.ops.aten


@final
class Counting(TorchDispatchMode):
    """Counts multiply-accumulates inside it, on any device; shapes are enough, as on the meta device.

    Formulas are those of torch's flop counter, and the ones below for operations that it knows only taken apart.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        super().__init__()
        self.macs: Counter[str] = Counter()
        """By the path of the innermost module that ran the operation."""
        self.uncounted: set[str] = set()
        """Operations that calculate, and have no formula."""
        self._paths = [""]

    @contextmanager
    def modules_of(self, network: nn.Module) -> Iterator[None]:
        """Within it, what runs is counted where it ran; otherwise all is under ''."""
        hooks = []
        for path, module in network.named_modules():
            hooks += [
                module.register_forward_pre_hook(lambda _module, _inputs, path=path: self._paths.append(path)),
                module.register_forward_hook(lambda _module, _inputs, _output: self._leave()),
            ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _leave(self) -> None:
        self._paths.pop()

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        formula = _formula(func.overloadpacket)
        if formula is not None:
            found = func(*args, **kwargs)
            self.macs[self._paths[-1]] += formula(found, *args, **kwargs)
            return found
        counted, names = self.macs.total(), set(self.uncounted)
        with self:
            found = func.decompose(*args, **kwargs)
        if found is NotImplemented:
            found = func(*args, **kwargs)
            if _has_numbers((args, kwargs)) and _has_numbers(found) and not _only_carries(func):
                self.uncounted.add(_name(func))
        elif self.uncounted != names:  # said of the whole, whose name people know, and only if none of it is counted
            self.uncounted = names if self.macs.total() > counted else names | {_name(func)}
        return found


def _has_numbers(values: Any) -> bool:
    leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    return any(leaf.is_floating_point() or leaf.is_complex() for leaf in leaves)


def _only_carries(func: Any) -> bool:
    """Whether an operation looks at numbers otherwise, or brings them elsewhere."""
    return func.is_view or func.overloadpacket in CARRY


def _name(func: Any) -> str:
    """As one calls it: `add` of torch's own `aten::add_`."""
    text: str = func.overloadpacket._qualified_op_name
    return text.removeprefix("aten::").removesuffix("_")


CARRY = frozenset({aten.clone, aten.copy_, aten._to_copy, aten._unsafe_view, aten.cat, aten.stack})


# ---------------------------------------------------------------------------------------------------------------------
# Formulas: of what an operation gave and was given. What it adds to a product, such as a bias, is one more.


def _formula(packet: Any) -> Callable[..., int] | None:
    own = OWN.get(packet)
    return own or (partial(_flops, packet) if packet in flop_registry else None)


def _flops(packet: Any, output: Any, *args: Any, **kwargs: Any) -> int:
    """By torch's formula, which counts multiplications and additions alike."""
    flops: int = flop_registry[packet](*args, **kwargs, out_val=output)
    return flops // 2


def _linear(output: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> int:
    return output.numel() * (weight.shape[-1] + (bias is not None))


def _bilinear(output: Tensor, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> int:
    return output.numel() * (weight[0].numel() + (bias is not None))


def _added(output: Tensor, *args: Any, **kwargs: Any) -> int:
    return _flops(aten.addmm, output, *args, **kwargs) + output.numel()


def _convolution(output: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *args: Any, **kwargs: Any) -> int:
    products = _flops(aten.convolution, output, x, weight, bias, *args, **kwargs)
    return products + (bias is not None) * output.numel()


def _vector(output: Tensor, matrix: Tensor, vector: Tensor) -> int:
    return matrix.numel()


def _attention(output: Tensor, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> int:
    """Every query meets every key and every value; what a mask hides is calculated, too."""
    return output[..., 0].numel() * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def _recurrent(output: Any, x: Tensor, *args: Any) -> int:
    """Every weight and bias, of all layers and directions, is used once at every step."""
    weights = [given for given in args if isinstance(given, Sequence)][-1]
    return x[..., 0].numel() * sum(weight.numel() for weight in weights)


OWN: Mapping[Any, Callable[..., int]] = {
    aten.linear: _linear,
    aten.bilinear: _bilinear,
    aten.addmm: _added,
    aten.convolution: _convolution,
    aten.mv: _vector,
    aten.dot: _vector,
    aten.scaled_dot_product_attention: _attention,
    aten.gru: _recurrent,
    aten.lstm: _recurrent,
    aten.rnn_tanh: _recurrent,
    aten.rnn_relu: _recurrent,
}
