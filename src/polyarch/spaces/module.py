"""Any `nn.Module` with a `Choice` in it, or a `Depth` at its end, as a space."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.data.checks import reason
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.settings import AtLeast
from polyarch.spaces.base import Space, Supernet, relaxation_of
from polyarch.spaces.choice import Choice
from polyarch.spaces.cost import Cost, CostTable, choice_costs, cost_in_memory
from polyarch.spaces.factory import calls, check_factory, name_of, text_of
from polyarch.spaces.own_depth import Depth, OwnDepthSupernet, depths
from polyarch.spaces.relaxation import Relaxation, SimplexPerDecision
from polyarch.spaces.repeats import InTurn
from polyarch.spaces.supernets import ChoiceSupernet
from polyarch.trees import called

logger = logging.getLogger("polyarch")


@dataclass(frozen=True, kw_only=True)
class ModuleSpace(Space):
    """The choices inside a module of one's own; the module takes [batch, ...] and gives [batch, outputs].

    Either it has `Choice`s, or it ends in a `Depth`, and the space is nested.

    Outputs are logits for classes, or the mean for regression; inputs come standardised, and tokens as int64.
    """

    factory: Callable[[], nn.Module] | nn.Module | str = field(default="", kw_only=False)
    """Makes the module: a function or class at the top level of a file, or its `package.module:name`, with arguments
    where it takes some: `my_file:Network(width=64)`. A run keeps the name, so that it can make its networks again.

    Or what has no name: a lambda, or a module, with whose weights all networks then begin. Another process must be
    given it again (`open_run(folder, space=...)`)."""
    max_depth: Annotated[int, AtLeast(0)] | None = None
    """Of a module with a `Depth`, the deepest network considered; blocks beyond it are left out. None: all blocks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_factory(self.factory)

    @cached_property
    def make(self) -> Callable[[], nn.Module]:
        """What is called for a new module."""
        return calls(self.factory)

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """One per name of a `Choice`, in the order in which the module has them; or that of the `Depth`."""
        found: dict[str, Decision] = {}
        for point in self._points:
            decision = Decision(point.name, point.labels)
            if found.setdefault(point.name, decision) != decision:
                raise PolyarchError(
                    f"two Choices are called {point.name!r} and have different options; the same name is the same "
                    "decision: give them the same options in the same order, or two names"
                )
        return tuple(found.values())

    @cached_property
    def _points(self) -> list[Choice | Depth]:
        """Where a module is open."""
        with _apart():
            module = self.fresh()
        return _open(module)

    @property
    @override
    def nested(self) -> bool:
        """Whether the module ends in a `Depth`."""
        return isinstance(self._points[0], Depth)

    @property
    @override
    def relaxation(self) -> Relaxation | None:
        return None if self.nested else SimplexPerDecision(self.decisions)

    def check(self, shape: TaskShape) -> None:
        """Runs every option once on two inputs, so that what does not fit together shows before training."""
        with _apart(), torch.no_grad():
            module = self.fresh().eval()
            self._check_new(module, self.fresh())
            answers: list[Any] = []
            reached: set[str] = set()
            for point in set(_open(module)):
                point.register_forward_pre_hook(lambda point, _inputs: reached.add(point.name))
                check = _check_depth if isinstance(point, Depth) else _check_options
                point.register_forward_pre_hook(check, with_kwargs=True)
                point.register_forward_hook(lambda _point, _inputs, answer: answers.append(answer))
            try:
                output = called(module, shape.trial(2))
            except PolyarchError:
                raise
            except Exception as error:  # whatever a module of the user's raises
                raise PolyarchError(
                    f"{type(module).__name__} does not run on {shape.words}: {type(error).__name__}: {reason(error)}"
                ) from error
        idle = [decision.name for decision in self.decisions if decision.name not in reached]
        if idle and not self.nested:
            logger.warning(
                "%s never calls its Choice %s: whatever is chosen there changes nothing",
                *(type(module).__name__, ", ".join(map(repr, idle))),
            )
        if not isinstance(output, Tensor) or output.shape != (2, shape.outputs):
            given = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise PolyarchError(
                f"{type(module).__name__} answers two inputs with {given}; this data needs (2, {shape.outputs}): "
                f"[batch, {shape.outputs}]"
            )
        if self.nested and (len(answers) != 1 or answers[0] is not output):
            raise PolyarchError(
                f"{type(module).__name__} must end in its Depth: call it once, return what it gives, and put what "
                "follows into its head"
            )

    def _check_new(self, one: nn.Module, other: nn.Module) -> None:
        """Raises where two calls made one module, or modules that share weights."""
        if other is one:
            raise PolyarchError(f"{self.name} gives the same module twice; make a new one at every call")
        shared = set(one.parameters()) & set(other.parameters())
        for name in (name for name, parameter in one.named_parameters() if parameter in shared):
            raise PolyarchError(
                f"{self.name} gives two modules that share the weight {name}; make new ones at every call, such as by "
                "copy.deepcopy of what is pretrained"
            )

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> Supernet:
        if self.nested:
            return OwnDepthSupernet(self, shape, repeats)
        return ChoiceSupernet(self, shape, repeats, InTurn(self.fresh, repeats))

    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        """The module with its open choices replaced by what was chosen; all its buffers are saved with its weights."""
        options = dict(zip((d.name for d in self.decisions), architecture.choices, strict=True))
        return _settled(self.fresh(), lambda point: point.chosen(options[point.name]))

    def pruned(self, architecture: Architecture) -> ModuleSpace:
        """Of a module with a `Depth`, the space that ends at an architecture's."""
        [decision], [option] = self.decisions, architecture.choices
        return replace(self, max_depth=int(decision.options[option]))

    def stepwise(self, architecture: Architecture) -> nn.Module:
        """Of a module with a `Depth`, the network of an architecture, answering after every block."""
        return _settled(self.pruned(architecture).fresh(), lambda point: point.stepwise())

    @override
    def cost(self, architecture: Architecture, shape: TaskShape) -> Cost:
        """In memory, since what the user writes may read values back."""
        return cost_in_memory(lambda: self.build(architecture, shape), shape)

    def cost_table(self, shape: TaskShape) -> CostTable:
        """In memory, like `cost`."""

        def make() -> nn.Module:
            with _apart():
                return self.fresh()

        return choice_costs(make, relaxation_of(self), shape)

    def settings(self) -> dict[str, Any]:
        """The factory's name, and `max_depth` where it is set."""
        return {"factory": self._told} | ({} if self.max_depth is None else {"max_depth": self.max_depth})

    @cached_property
    def _told(self) -> str:
        """By which a run finds the factory again."""
        return text_of(self.factory, self.whole)

    @property
    @override
    def name(self) -> str:
        """What makes the module: `--space` takes it as well, where it is the name of a class or function."""
        return name_of(self.factory)

    def fresh(self) -> nn.Module:
        """A new module, from torch's own chance, with all buffers among what is saved."""
        module = self.whole()
        if self.max_depth is not None:
            self._cut(module)
        return module

    def whole(self) -> nn.Module:
        """The same with all blocks of a `Depth`; where there is memory, since what the user writes may read values."""
        where = torch.get_default_device()
        try:
            with torch.device("cpu" if where.type == "meta" else where):
                module = self.make()
        except PolyarchError:
            raise
        except Exception as error:  # whatever the user's code raises
            how = "so" if "(" in self.name else "without arguments"
            raise PolyarchError(
                f"{self.name} makes no module: {type(error).__name__}: {reason(error)}; it is called {how}"
            ) from error
        if not isinstance(module, nn.Module):
            raise PolyarchError(f"{self.name} gives {type(module).__name__}, not an nn.Module; return the module")
        if any(is_lazy(parameter) for parameter in module.parameters()):
            raise PolyarchError(f"{self.name} has lazy layers, whose sizes are still open; write their sizes down")
        for part in module.modules():  # a buffer that is not saved would be drawn anew by every process
            for name, buffer in part.named_buffers(recurse=False):
                part.register_buffer(name, buffer, persistent=True)
        return module

    def _cut(self, module: nn.Module) -> None:
        """Leaves out, in place, what lies beyond `max_depth`."""
        found = depths(module)
        if not found:
            raise PolyarchError(f"max_depth is for a module with a Depth, and {self.name} has none; leave it out")
        for depth in found.values():
            if str(self.max_depth) not in depth.labels:
                raise PolyarchError(
                    f"max_depth is {self.max_depth}; of Depth {depth.name!r} it can be {depth.labels[0]} to "
                    f"{depth.labels[-1]}"
                )
            depth.cut(depth.labels.index(str(self.max_depth)))


@contextmanager
def _apart() -> Iterator[None]:
    """On the CPU, with a copy of torch's chance: what is only looked at leaves no trace."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        yield


def _open(module: nn.Module) -> list[Choice | Depth]:
    """Every place in a module that is open, in order; raises unless there are Choices, or one Depth alone."""
    points = [part for _, part in module.named_modules(remove_duplicate=False) if isinstance(part, Choice | Depth)]
    if not points:
        raise PolyarchError(
            f"{type(module).__name__} has no open choice; put a polyarch.Choice in it, or end in a polyarch.Depth"
        )
    if len(points) > 1 and any(isinstance(point, Depth) for point in points):
        raise PolyarchError(f"{type(module).__name__} has a Depth and another open choice; leave one Depth, or Choices")
    return points


def _check_depth(depth: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raises unless every block and the head run."""
    assert isinstance(depth, Depth)
    depth.check(*inputs, **named)


def _check_options(choice: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raises unless every option of a Choice answers its inputs in one shape, and leaves them as they are."""
    assert isinstance(choice, Choice)
    given = [value for value in (*inputs, *named.values()) if isinstance(value, Tensor)]
    versions = [value._version for value in given]
    shapes = {}
    for label, option in zip(choice.labels, choice.options, strict=True):
        what = f"Choice {choice.name!r}: option {label!r}"
        try:
            answer = option(*inputs, **named)
        except PolyarchError:
            raise
        except Exception as error:  # whatever a module of the user's raises
            raise PolyarchError(f"{what} does not run on its input: {type(error).__name__}: {reason(error)}") from error
        if not isinstance(answer, Tensor):
            raise PolyarchError(f"{what} answers with {type(answer).__name__}; an option gives one tensor")
        if versions != [value._version for value in given]:
            raise PolyarchError(f"{what} changes its input in place, which other options take too; use inplace=False")
        shapes[label] = tuple(answer.shape)
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{label} {shape}" for label, shape in shapes.items())
        raise PolyarchError(
            f"Choice {choice.name!r}: its options answer two inputs in different shapes ({told}); make them agree"
        )


def _settled(module: nn.Module, chosen: Callable[[Any], nn.Module]) -> nn.Module:
    """Replaces every open place in a module, in place, by what is chosen for it."""
    while isinstance(module, Choice | Depth):
        module = chosen(module)
    for name, child in module._modules.items():  # not named_children, which tells of a shared module once
        if child is not None:
            module._modules[name] = _settled(child, chosen)
    return module
