"""How much memory the tensors take that a computation makes, temporaries among them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override


class Allocation(TorchDispatchMode):
    """Follows the tensors that are made inside it, from when they are made until they are freed.

    What an operation takes and gives back within itself is not seen. Works on fake tensors as on real ones.
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        super().__init__()
        self.bytes = 0
        """Of what lives now."""
        self.peak = 0
        """The most that it ever was."""
        self._living: set[int] = set()

    @override
    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        before = {storage._cdata for storage in _storages((args, kwargs))}  # of what was made elsewhere, too
        found = func(*args, **kwargs)
        for storage in _storages(found):
            key, size = storage._cdata, storage.nbytes()
            if key in before or key in self._living:
                continue
            self._living.add(key)
            self.bytes += size
            weakref.finalize(storage, self._free, key, size).atexit = False
        self.peak = max(self.peak, self.bytes)
        return found

    def _free(self, key: int, size: int) -> None:
        self._living.discard(key)
        self.bytes -= size


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
