"""Buffers of options that run without being chosen, such as running statistics of batch norm, stay as they were.

Where an architecture is data, every option runs, and what is not chosen has weight 0 (`Dense`); where repeats differ,
an option that one of them has may run for all (`SparsePerRepeat`). A batch norm inside would keep statistics of what
no chosen architecture has seen, and a search would depend on the form in which it runs. One thing is left that does: a
buffer that lies in two options, because both hold the same module, is moved by both where one of them is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import final

import torch
from torch import Tensor, nn

from polyarch.architecture import Decision
from polyarch.spaces.choice import ChoicePoints, Selection, SelectionPerRepeat, owners


@final
class ChosenBuffers:
    """The buffers of a network that lie in options; all have a leading axis of repeats."""

    def __init__(self, network: nn.Module, points: ChoicePoints, simplices: Sequence[Decision], repeats: int) -> None:
        """Looks up who owns which buffer."""
        self._network, self._simplices, self._repeats = network, simplices, repeats
        starts = accumulate((len(simplex) for simplex in simplices), initial=0)
        first = {simplex.name: start for simplex, start in zip(simplices, starts, strict=False)}
        places: dict[Tensor, dict[str, list[int]]] = {}
        for name, buffer in network.named_buffers(remove_duplicate=False):
            rows = [first[simplex] + option for simplex, option in owners(name, points)]
            places.setdefault(buffer, {})[name] = rows
        self._rows = {next(iter(own)): list(own.values()) for own in places.values() if all(own.values())}
        """Of every buffer, for each place that it has, the options it lies in there, numbered through all simplices."""
        self._index: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    @contextmanager
    def kept(self, selections: Mapping[str, Selection]) -> Iterator[None]:
        """Afterwards a buffer is as it was before for every repeat that has not chosen the options it lies in."""
        known = [selections[simplex.name] for simplex in self._simplices]
        if not self._rows or not any(isinstance(one, Tensor | SelectionPerRepeat) for one in known):
            yield  # only what is chosen runs
            return
        by_type: dict[torch.dtype, list[str]] = {}
        for name in self._rows:
            by_type.setdefault(self._network.get_buffer(name).dtype, []).append(name)
        # All buffers as one: a kernel for each of hundreds of small tensors would take longer than a step should.
        before = {kind: self._flat(names) for kind, names in by_type.items()}
        yield
        with torch.no_grad():
            used = self._used(known)
            for kind, names in by_type.items():
                chosen = used[self._places(names, kind, used.device)].all(1).any(0)
                merged = torch.where(chosen, self._flat(names), before[kind])
                # `.data`: torch keeps running statistics for the gradient of batch norm, and watches over them, but in
                # training does not read them.
                buffers = [self._network.get_buffer(name).data for name in names]
                parts = merged.split([buffer.numel() for buffer in buffers])
                torch._foreach_copy_(buffers, [part.view_as(own) for part, own in zip(parts, buffers, strict=True)])

    def _flat(self, names: Sequence[str]) -> Tensor:
        return torch.cat([self._network.get_buffer(name).flatten() for name in names])

    def _used(self, known: Sequence[Selection]) -> Tensor:
        """For every option and repeat, whether it is chosen; at the end once more true, for every repeat."""
        device = self._network.get_buffer(next(iter(self._rows))).device
        rows = []
        for selection, simplex in zip(known, self._simplices, strict=True):
            weights = selection.weights if isinstance(selection, SelectionPerRepeat) else selection
            if isinstance(weights, Tensor):
                rows.append((weights != 0).any(-1).flatten())
            else:  # what the host knows for all repeats: other options do not run, and need no care
                rows.append(torch.ones(len(simplex) * self._repeats, dtype=torch.bool, device=device))
        return torch.cat([*rows, torch.ones(self._repeats, dtype=torch.bool, device=device)])

    def _places(self, names: Sequence[str], kind: torch.dtype, device: torch.device) -> Tensor:
        """Of every element of `_flat`, where `_used` says of the options it lies in: [places, levels, elements]."""
        key = (device, kind)
        if key not in self._index:  # once: a step that is being captured can make no tensors out of what the host knows
            most = max(len(own) for own in self._rows.values())
            levels = max(len(rows) for own in self._rows.values() for rows in own)
            last, parts = sum(map(len, self._simplices)), []
            for name in names:
                own = self._rows[name] + self._rows[name][:1] * (most - len(self._rows[name]))
                rows = torch.tensor([[*place, *[last] * (levels - len(place))] for place in own])
                each = self._network.get_buffer(name).numel() // self._repeats
                by_repeat = rows[..., None] * self._repeats + torch.arange(self._repeats)
                parts.append(by_repeat.repeat_interleave(each, -1))
            self._index[key] = torch.cat(parts, -1).to(device)
        return self._index[key]
