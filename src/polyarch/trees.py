"""Trees of tensors: a tensor, or a mapping or tuple of trees. A network may take several inputs, a step many draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from torch import Tensor

Tree = Tensor | Mapping[str, "Tree"] | tuple["Tree", ...]


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """A tree of the same shape, made of what `function` gives for the tensors of one or several trees."""
    if isinstance(tree, Mapping):
        return {name: tree_map(function, value, *(other[name] for other in others)) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(tree_map(function, *values) for values in zip(tree, *others, strict=True))
    return function(tree, *others)


def called(network: Callable[..., Any], x: Any) -> Any:
    """A network on its inputs: one, several in order, or several by name."""
    if isinstance(x, tuple):
        return network(*x)
    return network(**x) if isinstance(x, Mapping) else network(x)


def leaves(tree: Any) -> Iterator[Tensor]:
    """Its tensors, in order."""
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, tuple):
        for value in tree:
            yield from leaves(value)
    else:
        yield cast(Tensor, tree)
