"""How deep a module of one's own should be: a `Depth` at its end, and the supernet of all its depths."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.data.checks import reason
from polyarch.data.task import TaskShape
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Supernet
from polyarch.spaces.choice import check_name
from polyarch.spaces.depth import prune
from polyarch.spaces.repeats import How, InTurn
from polyarch.spaces.stepwise import Stepwise
from polyarch.spaces.supernets import name_shared
from polyarch.spaces.views import All, Dense, PerExample, Sparse, View

if TYPE_CHECKING:
    from polyarch.spaces.module import ModuleSpace


@final
class Depth(nn.Module):
    """The end of an ordinary `nn.Module`, whose depth is open: so many of the blocks run, and then the head.

    Blocks are used as they are, x -> block(x): a residual block adds x itself. The head answers after every depth that
    is considered, so it must fit what each gives; its weights serve all depths, and its buffers, such as statistics of
    batch norm, are every depth's own. On its own, outside a search, all blocks run.

        self.depth = pa.Depth("depth", [ResidualBlock(64) for _ in range(12)], head=nn.Linear(64, 10))
    """

    def __init__(self, name: str, blocks: Iterable[nn.Module], head: nn.Module, *, least: int = 0) -> None:
        """Takes the modules over.

        Args:
            name: of the decision.
            blocks: in order: a list, `nn.ModuleList` or `nn.Sequential`.
            head: what makes the answers [batch, outputs] of what the last block gives.
            least: the smallest depth that is considered; so many blocks always run, such as those before a projection
                after which alone the head fits.
        """
        super().__init__()
        check_name(f"Depth {name!r}", name)
        if not isinstance(blocks, Iterable):
            raise PolyarchError(f"Depth {name!r}: blocks are {type(blocks).__name__}; give a list of modules")
        blocks = list(blocks)
        for part, module in (*((f"block {k}", block) for k, block in enumerate(blocks, 1)), ("the head", head)):
            if not isinstance(module, nn.Module):
                raise PolyarchError(
                    f"Depth {name!r}: {part} is {type(module).__name__}, not an nn.Module; wrap it in one"
                )
        if not isinstance(least, int) or not 0 <= least <= len(blocks):
            raise PolyarchError(
                f"Depth {name!r}: least is {least!r}; with {len(blocks)} blocks, 0 to {len(blocks)} fit"
            )
        self.name, self.least = name, least
        self.blocks = nn.ModuleList(blocks)
        self.heads = nn.ModuleList([head, *(_sharing(head) for _ in range(len(blocks) - least))])
        self._option: int | None = len(self.heads) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The depths that are considered, as texts."""
        return tuple(str(self.least + option) for option in range(len(self.heads)))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, ...] -> [batch, outputs]; while `answering` for all depths, [depths, batch, outputs]."""
        if self._option is None:
            return torch.stack([head(a) for head, a in zip(self.heads, self._activations(x), strict=True)])
        answer: Tensor = self.heads[self._option](next(islice(self._activations(x), self._option, None)))
        return answer

    def _activations(self, x: Tensor) -> Iterator[Tensor]:
        """What the head reads, the shallowest depth first; each is handed on before the next block runs."""
        for block in islice(self.blocks, self.least):
            x = block(x)
        yield x
        for block in islice(self.blocks, self.least, None):
            x = block(x)
            yield x

    @contextmanager
    def answering(self, option: int | None) -> Iterator[None]:
        """For a while, this option answers; None is all of them."""
        before, self._option = self._option, option
        try:
            yield
        finally:
            self._option = before

    def cut(self, option: int) -> None:
        """Leaves out what lies beyond an option."""
        self.blocks, self.heads = self.blocks[: self.least + option], self.heads[: option + 1]
        self._option = option

    def chosen(self, option: int) -> nn.Module:
        """What stands here in the network of an option."""
        blocks = nn.Sequential(*self.blocks[: self.least + option])
        return nn.Sequential(OrderedDict(blocks=blocks, head=self.heads[option]))

    def stepwise(self) -> Stepwise:
        """What stands here in the network that answers after every block."""
        return Stepwise(self.blocks, self.heads)

    def check(self, x: Tensor) -> None:
        """Raises unless every block runs and the head answers in one shape after all depths that are considered."""
        count, shapes = len(self.blocks), {}
        for depth in range(count + 1):
            if depth:
                x = self._runs(self.blocks[depth - 1], x, f"block {depth} of {count} does not run on its input")
            if depth >= self.least:
                what = f"its head does not run after {depth} of {count} blocks, on {tuple(x.shape)}"
                if depth < count:
                    what += f" (keep the shape, or begin where it fits: least={depth + 1} or more)"
                shapes[depth] = tuple(self._runs(self.heads[depth - self.least], x, what).shape)
        if len(set(shapes.values())) > 1:
            told = ", ".join(f"{shape} after {depth}" for depth, shape in shapes.items())
            raise PolyarchError(f"Depth {self.name!r}: its head answers two inputs with {told} blocks; make them agree")

    def _runs(self, module: nn.Module, x: Tensor, what: str) -> Tensor:
        version = x._version
        try:
            answer = module(x)
        except Exception as error:  # whatever a module of the user's raises
            raise PolyarchError(f"Depth {self.name!r}: {what}: {type(error).__name__}: {reason(error)}") from error
        if not isinstance(answer, Tensor):
            raise PolyarchError(f"Depth {self.name!r}: a block or head gives {type(answer).__name__}, not one tensor")
        if x._version != version:
            raise PolyarchError(
                f"Depth {self.name!r}: a block or head changes its input in place, which others take too; use "
                "inplace=False"
            )
        return answer


def _sharing(head: nn.Module) -> nn.Module:
    """A copy with the same parameters, and buffers of its own."""
    parameters = {id(parameter): parameter for parameter in head.parameters()}
    return copy.deepcopy(head, {**parameters, **{id(buffer): buffer.clone() for buffer in head.buffers()}})


def depths(module: nn.Module) -> dict[str, Depth]:
    """Every `Depth` of a module, by its path."""
    found = module.named_modules(remove_duplicate=False)
    return {path: part for path, part in found if isinstance(part, Depth)}


@final
class OwnDepthSupernet(Supernet):
    """A module that ends in a `Depth`: the weights of all depths, which one pass answers for. Repeats run in turn."""

    views: frozenset[type] = frozenset({Sparse, Dense, PerExample, All})
    repeats_run: How = InTurn.how
    space: ModuleSpace

    def __init__(self, space: ModuleSpace, shape: TaskShape, repeats: int) -> None:
        """Makes room for the weights; `reset_parameters` draws them."""
        super().__init__()
        self.space, self.shape, self.repeats = space, shape, repeats
        self.runner = InTurn(space.fresh, repeats)
        self.network = self.runner.network
        [(self._path, depth)] = depths(self.network).items()
        self._least, self._answering = depth.least, depth.answering
        self.register_load_state_dict_pre_hook(name_shared)

    @override
    def forward(self, x: Any, view: View) -> Tensor:
        if isinstance(view, All):
            return self._answers(x, None)
        if isinstance(view, Sparse):
            return self._answers(x, view.choices[0])
        if isinstance(view, Dense):
            return self._chosen(x, view.choices.unsqueeze(1))
        if isinstance(view, PerExample):
            return self._chosen(x, view.choices)
        raise PolyarchError(f"a Depth does not run under {type(view).__name__}; run it under All and mix the answers")

    def _answers(self, x: Any, option: int | None) -> Tensor:
        with self._answering(option):
            return self.runner.run(x, {}, self.training)[0]

    def _chosen(self, x: Any, choices: Tensor) -> Tensor:
        """The answers of chosen options: choices are [repeats, batch or 1, 1]."""
        answers = self._answers(x, None)
        index = choices.unsqueeze(1).expand(-1, 1, *answers.shape[2:])
        return answers.gather(1, index).squeeze(1)

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        self.runner.reset_parameters(generators)

    @override
    def draw_from(self, generators: Sequence[torch.Generator]) -> None:
        self.runner.draw_from(generators)

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        [option] = architecture.choices
        place = f"{self._path}." if self._path else ""  # the whole network may be a Depth
        head, kept = f"{place}heads.{option}.", tuple(f"{place}blocks.{k}." for k in range(self._least + option))
        state = {}
        for name, value in self.network.state_dict().items():
            if name.startswith(head):
                state[f"{place}head.{name.removeprefix(head)}"] = value[repeat]
            elif name.startswith(kept) or not name.startswith((f"{place}blocks.", f"{place}heads.")):
                state[name] = value[repeat]
        return state

    @override
    def nested_members(self, architecture: Architecture, belief: Distribution) -> tuple[OwnDepthSupernet, Tensor]:
        """Depths up to the architecture's, with copies of their weights; the mass of deeper ones moved onto it."""
        small = OwnDepthSupernet(self.space.pruned(architecture), self.shape, 1)
        own = self.state_dict()
        small.load_state_dict({name: own[name] for name in small.state_dict()})
        [probs] = belief.probs().values()
        return small.eval(), prune(probs, architecture.choices[0])

    @override
    def stepwise(self, architecture: Architecture) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # first weights that are thrown away must not move the user's chance
            module = self.space.stepwise(architecture)
        own = self.network.state_dict()
        module.to(next(self.parameters()).dtype).load_state_dict({name: own[name][0] for name in module.state_dict()})
        return module.eval()
