"""A program of `torch.export` as a file of Python that needs torch alone, for weights that are kept by name.

Weights answer nothing without code. So what `torch.export` saw is written down as it ran: one line for every operation
of torch, in a module with the names of the weights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export.graph_signature import InputKind, OutputKind

from polyarch.errors import PolyarchError

FEW = 256
"""Constants of so many numbers stand in the source, and whatever is a list of them, such as the places of categories;
others, such as masks, are in the file of weights."""
PREFIX = "predictor."
"""Before the names of weights in a program: `answering.Answering.predictor`."""
CONSTANTS = "constants."
"""Before the names of constants in the file of weights."""
KNOWN = {"torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree"}
"""What a program may speak of; of the last three no line does."""
FREED = re.compile(r";\s+[\w =]+ = None\b.*$")
"""At the end of a line of a program, which values are needed no more."""
CHECKS = ("torch.ops.aten._assert_tensor_metadata", "torch.ops.aten._assert_scalar", "torch.ops.aten.sym_constrain")
"""What a program asserts of itself."""

MARK = "Written by polyarch, as torch.export saw the network; a change here is lost when it is written again."
HEAD = '''"""{what}

{about}

{mark}

It needs torch and safetensors, and nothing else. It is that of evaluation: there is no dropout, and batch norm keeps
its statistics. Each line is an operation of torch: `{aten}.linear.default` is `torch.nn.functional.linear`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, device, inf, nan, nn

{aten} = torch.ops.aten
WEIGHTS = Path(__file__).with_name({file})
PARAMETERS = {parameters}


def load(path: str | Path = WEIGHTS) -> Network:
    """The network with its weights; `load().requires_grad_()` can be trained."""
    return Network(load_file(path))


class Network(nn.Module):
    """Called with {inputs}, it answers by name: {outputs}."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name, value in tensors.items():
            module, (*path, last) = self, name.split(".")
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module._modules[part]
            if name in PARAMETERS:
                module.register_parameter(last, nn.Parameter(value, requires_grad=False))
            else:
                module.register_buffer(last, value)

    def forward(self, {arguments}) -> dict[str, Tensor]:
        {weights} = {{**dict(self.named_parameters()), **dict(self.named_buffers())}}
'''
BRANCH = '''

def either(condition, then, otherwise, operands):
    """One of two branches."""
    return (then if condition else otherwise)(*operands)
'''
GRADIENTS = '''

def with_gradients(enabled, branch, *operands):
    """A part of the network with gradients, or without."""
    with torch.set_grad_enabled(enabled):
        return branch(*operands)
'''


def check_place(path: Path, file: Path) -> None:
    """Raises where there is code already that is not of here: it would be lost."""
    if path == file or (path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace")):
        raise PolyarchError(f"{path} would be replaced by the source of this network; write to another file")


def constants_beyond(program: torch.export.ExportedProgram) -> dict[str, Tensor]:
    """Constants of a program that are too large for its source, by their names in the file of weights."""
    return {
        f"{CONSTANTS}{name}": value.detach().contiguous()
        for name, value in program.constants.items()
        if isinstance(value, Tensor) and _is_large(value)
    }


def source_of(program: torch.export.ExportedProgram, file: str, outputs: Sequence[str], told: Mapping[str, Any]) -> str:
    """A file of Python that answers as the program does.

    Args:
        program: whose outputs are tensors.
        file: of the weights, beside it.
        outputs: what its outputs are called.
        told: what `model_card.about` says of it.
    """
    weights, aten = (_free(name, program.graph_module) for name in ("w", "aten"))
    arguments, names = _placeholders(program, weights)
    parameters = [_plain(name) for name in program.graph_signature.parameters]
    text = HEAD.format(
        what=_in_docstring(f"{told['what']} for {told['data']}: {told['architecture']}, of the space {told['space']}."),
        about=f"Weights are in {_in_docstring(file)}, beside this file; {_in_docstring(file)}.md says what it is.",
        file=json.dumps(file),
        parameters="{\n" + "".join(f"    {json.dumps(name)},\n" for name in parameters) + "}"
        if parameters
        else "set()",
        inputs=", ".join(arguments),
        outputs=", ".join(outputs),
        arguments=", ".join(f"{name}: Tensor" for name in arguments),
        weights=weights,
        aten=aten,
        mark=MARK,
    )
    lines, given = _statements(program.graph_module, names)
    text += "".join(f"        {line}\n" for line in lines)
    kinds = [spec.kind for spec in program.graph_signature.output_specs]
    answers = [value for value, kind in zip(given, kinds, strict=True) if kind == OutputKind.USER_OUTPUT]
    pairs = [f"{json.dumps(name)}: {value}" for name, value in zip(outputs, answers, strict=True)]
    text += f"        return {{{', '.join(pairs)}}}\n" + _branches(program.graph_module)
    if "higher_order.cond" in text:
        text = text.replace("torch.ops.higher_order.cond", "either") + BRANCH
    if "higher_order.wrap_with_set_grad_enabled" in text:
        text = text.replace("torch.ops.higher_order.wrap_with_set_grad_enabled", "with_gradients") + GRADIENTS
    if "torch.ops.higher_order" in text:
        raise PolyarchError("this network has a part that cannot be written as source; write a .pt2 or an .onnx")
    return text.replace("torch.ops.aten.", f"{aten}.")


def _free(name: str, module: nn.Module) -> str:
    """A name that no value of a program has, nor of its parts."""
    parts = (part for part in module.modules() if isinstance(part, torch.fx.GraphModule))
    taken = {node.name for part in parts for node in part.graph.nodes}
    while name in taken:
        name += "_"
    return name


def _placeholders(program: torch.export.ExportedProgram, weights: str) -> tuple[list[str], dict[str, str]]:
    """The inputs of a program, and for every other value that it is given what stands there in the source."""
    arguments, names = [], {}
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind == InputKind.USER_INPUT:
            arguments.append(name)
        elif spec.target in program.constants:
            names[name] = _constant(str(spec.target), program.constants[str(spec.target)], weights)
        else:
            names[name] = f"{weights}[{json.dumps(_plain(str(spec.target)))}]"
    return arguments, names


def _is_large(value: Tensor) -> bool:
    return value.dim() > 1 and value.numel() > FEW


def _constant(name: str, value: Any, weights: str) -> str:
    if _is_large(value):
        return f"{weights}[{json.dumps(CONSTANTS + name)}]"
    return f"torch.tensor({value.tolist()!r}, dtype={value.dtype}).reshape({list(value.shape)})"


def _plain(name: str) -> str:
    return name.removeprefix(PREFIX)


def _statements(module: nn.Module, names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The lines of a graph without its first and its last, and what it gives back."""
    graph: Any = module.graph
    code = graph.python_code("self")
    unknown = set(code.globals) - KNOWN
    if unknown:
        raise PolyarchError(
            f"this network speaks of {', '.join(sorted(unknown))}, which cannot be written as source; write a .pt2"
        )
    body = code.src.split("\n    ")[1:]
    lines = []
    for line in body:
        line = FREED.sub("", line.rstrip())
        made = line.partition(" = ")[2]
        if not line or line.startswith("return") or made.startswith(CHECKS) or line.startswith(CHECKS):
            continue
        if re.fullmatch(r"(\w+) = self\.\1", line):  # a branch, which is a function of that name
            continue
        lines.append(_renamed(line, names))
    [output] = graph.find_nodes(op="output")
    given = output.args[0] if isinstance(output.args[0], tuple | list) else [output.args[0]]
    return lines, [_renamed(str(value), names) for value in given]


def _renamed(line: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda found: names.get(found[0], found[0]), line)


def _branches(module: nn.Module) -> str:
    """Parts of a graph that are graphs, as functions."""
    text = ""
    for name, part in module.named_children():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        arguments = ", ".join(node.name for node in part.graph.find_nodes(op="placeholder"))
        lines, given = _statements(part, {})
        body = "".join(f"    {line}\n" for line in [*lines, f"return ({', '.join(given)},)"])
        text += f"\n\ndef {name}({arguments}):\n{body}" + _branches(part)
    return text


def _in_docstring(text: str) -> str:
    """Nothing of it ends a docstring, or is read as anything but text."""
    return " ".join(text.replace("\\", "/").replace('"', "'").split())
