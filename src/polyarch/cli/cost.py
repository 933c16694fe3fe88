"""`polyarch cost`: what a network would cost, without building it in memory."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from polyarch.cli.options import Json, Set


def cost(
    space: Annotated[str, typer.Option("--space", help="See `polyarch list`; or package.module:Class.")],
    arch: Annotated[str, typer.Option("--arch", metavar="TEXT", help="The architecture.")],
    classes: Annotated[int, typer.Option("--classes", min=1, help="Outputs of the network.")] = 10,
    inputs: Annotated[
        str, typer.Option("--input", metavar="CxHxW", help="Shape of one input; a single number is a vector.")
    ] = "3x32x32",
    tokens: Annotated[
        int, typer.Option("--tokens", min=0, help="Inputs are so many different tokens; 0: they are numbers.")
    ] = 0,
    latency: Annotated[bool, typer.Option("--latency", help="Also measure the time of a forward pass.")] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Inputs of a measured pass.")] = 1,
    device: Annotated[str, typer.Option("--device", help="Where to measure: auto, cpu, cuda or cuda:N.")] = "auto",
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Parameters (an auxiliary tower left out) and multiply-accumulates of a network, counted without its weights."""
    from polyarch.cli.choices import make_space
    from polyarch.data.task import TaskShape

    chosen = make_space(space, settings)
    shape = TaskShape(input_shape(inputs), classes, tokens)
    chosen.check(shape)
    architecture = chosen.parse(arch)
    found: dict[str, object] = {"space": space, "architecture": str(architecture)}
    counted = chosen.cost(architecture, shape)
    found |= vars(counted)
    if latency:
        from polyarch.runs.options import find_device
        from polyarch.spaces.cost import network_seconds

        where = find_device(device)
        seconds = network_seconds(chosen, architecture, shape, batch, where)
        found |= {"seconds": seconds, "batch": batch, "device": str(where)}
    if as_json:
        print(json.dumps(found))
        return
    print(f"{architecture} of {space}, inputs {inputs}, {classes} outputs:")
    print(f"  {counted.parameters:,} parameters, {counted.macs:,} multiply-accumulates")
    if counted.uncounted:
        print(f"  not counted: {', '.join(counted.uncounted)}")
    if latency:
        print(f"  {seconds * 1000:.2f} ms for a batch of {batch} on {found['device']}")


def input_shape(text: str) -> tuple[int, ...]:
    """The shape that a text such as 3x32x32 names."""
    from polyarch.errors import PolyarchError

    parts = text.lower().split("x")
    if len(parts) not in (1, 3) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise PolyarchError(f"--input {text}: write channels, height and width as 3x32x32, or one number for a vector")
    return tuple(int(part) for part in parts)
