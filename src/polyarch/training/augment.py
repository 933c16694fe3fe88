"""Image augmentation inside a step: all randomness is drawn before it, as data, so that the step can be captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, final

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.core import Batch, FeedSpec, Problem
from polyarch.errors import PolyarchError
from polyarch.settings import AtLeast, settle
from polyarch.streams import Streams


@final
@dataclass(frozen=True, kw_only=True)
class Augment:
    """Shifted crops, mirroring and cutout, in this order: the usual recipe for small images."""

    crop: Annotated[int, AtLeast(0)] = 0
    """Pad by so many black pixels on every side and crop back to the old size anywhere; 0 is off."""
    flip: bool = False
    """Mirror left and right, every second image on average."""
    cutout: Annotated[int, AtLeast(0)] = 0
    """Side of a square that is set to the mean colour. Its centre is any pixel, so it may stick out; 0 is off."""

    def __post_init__(self) -> None:
        settle(self)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises unless inputs of this shape can be augmented so; vectors can where everything is off."""
        if self == Augment():
            return
        if len(shape) != 3:
            raise PolyarchError(
                f"augmentation needs images [channels, height, width], but an input has the shape {list(shape)}; "
                "set crop=0, flip=false, cutout=0"
            )
        for name, pixels in (("crop", self.crop), ("cutout", self.cutout)):
            if pixels > min(shape[1:]):
                raise PolyarchError(
                    f"{name} is {pixels}, more than images of {shape[1]}x{shape[2]} have; "
                    f"set {name} to {min(shape[1:])} or less"
                )

    def draw(self, problem: Problem, feeds: Mapping[str, FeedSpec], streams: Streams) -> dict[str, dict[str, Any]]:
        """How the images of every batch of a step are changed, of one repeat; for `Method.draw`."""
        shape = problem.supernet.shape.input
        return {
            name: {"augment": self.draw_batches(shape, spec.count, spec.size, streams["augment"])}
            for name, spec in feeds.items()
        }

    def draw_batches(
        self, shape: tuple[int, ...], count: int, size: int, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """All randomness of some batches of one repeat, on the CPU; nothing for what is off.

        Args:
            shape: of one image, (channels, height, width).
            count: how many batches.
            size: examples of a batch, over all ranks.
            generator: the repeat's stream `augment`.

        Returns:
            `crop` int64 [count, size, 2], row and column in 0..2*crop where a crop of the padded image starts;
            `flip` bool [count, size]; `cutout` int64 [count, size, 2], row and column of the square's centre.
        """
        draws, examples = {}, count * size
        if self.crop:
            draws["crop"] = torch.randint(2 * self.crop + 1, (examples, 2), generator=generator)
        if self.flip:
            draws["flip"] = torch.randint(2, (examples,), generator=generator).bool()
        if self.cutout:
            centres = [torch.randint(side, (examples,), generator=generator) for side in shape[1:]]
            draws["cutout"] = torch.stack(centres, -1)
        return {name: value.unflatten(0, (count, size)) for name, value in draws.items()}

    def batch(self, problem: Problem, batch: Batch) -> Batch:
        """A batch with its images changed as was drawn for it."""
        if self == Augment():
            return batch
        return replace(batch, x=self.apply(batch.x, batch.draws["augment"], problem.black))

    def apply(self, x: Tensor, draws: Mapping[str, Tensor], black: Tensor | None = None) -> Tensor:
        """Augmented images.

        Args:
            x: [repeats, batch, channels, height, width], standardised; on many ranks, this rank's slice of the batch.
            draws: what `draw_batches` drew for this batch, with a leading axis of repeats, over all ranks.
            black: [channels, 1, 1], the standardised value of a raw 0, with which a crop is padded. Published recipes
                pad raw images. Zeros, the mean colour, by default.
        """
        own = {name: distributed.share(value, 1) for name, value in draws.items()}
        if self.crop or self.flip:
            x = self._crop_and_flip(x, own, x.new_zeros(()) if black is None else black.to(x.dtype))
        if self.cutout:
            x = x.masked_fill(self._hole(x, own["cutout"]), 0)
        return x

    def _crop_and_flip(self, x: Tensor, draws: Mapping[str, Tensor], black: Tensor) -> Tensor:
        """Says which pixel of `x` each pixel of the result is, and gathers them all at once; no padded copy is made."""
        height, width = x.shape[-2:]
        rows = torch.arange(height, device=x.device)
        columns = torch.arange(width, device=x.device)
        if self.flip:
            columns = torch.where(draws["flip"].unsqueeze(-1), width - 1 - columns, columns)
        if self.crop:
            shifts = draws["crop"] - self.crop
            rows, columns = rows + shifts[..., :1], columns + shifts[..., 1:]
        places = rows.clamp(0, height - 1).unsqueeze(-1) * width + columns.clamp(0, width - 1).unsqueeze(-2)
        places = places.flatten(-2).unsqueeze(-2).expand(*x.shape[:3], -1)
        gathered = x.flatten(-2).gather(-1, places).view(x.shape)
        if not self.crop:
            return gathered
        return torch.where(_both(_within(rows, 0, height), _within(columns, 0, width)), gathered, black)

    def _hole(self, x: Tensor, centres: Tensor) -> Tensor:
        """[repeats, batch, 1, height, width], true where the square is."""
        starts = centres - self.cutout // 2
        rows, columns = (
            _within(torch.arange(side, device=x.device), start, start + self.cutout)
            for side, start in zip(x.shape[-2:], starts.split(1, -1), strict=True)
        )
        return _both(rows, columns)


def _within(values: Tensor, start: Tensor | int, stop: Tensor | int) -> Tensor:
    return (values >= start) & (values < stop)


def _both(rows: Tensor, columns: Tensor) -> Tensor:
    """[repeats, batch, height] and [repeats, batch, width] -> [repeats, batch, 1, height, width], for all channels."""
    return (rows.unsqueeze(-1) & columns.unsqueeze(-2)).unsqueeze(-3)
