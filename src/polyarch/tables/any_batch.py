"""A model that was written for one example is made to take any number of them, in memory.

The computation of such an ONNX file often does not care: only the shapes that it declares for its inputs and outputs
say 1. They are found by walking the file's messages (protocol buffers: a field is a tag, then what it holds), and the
two bytes that say "this dimension is 1" become two that say "this dimension has a name, which is empty". Nothing moves,
so every length stays right, and no package is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

SHAPES = ((7,), (11, 12), (2,), (1,), (2,))
"""Fields on the way from a model to its shapes: the graph, inputs and outputs, their types, of tensors, the shape."""
DIMENSION = 1
ONE, ANY = b"\x08\x01", b"\x12\x00"
"""A dimension whose `dim_value` is 1, and one whose `dim_param` is the empty text."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Kinds of fields."""


def any_batch(model: bytes) -> bytes:
    """The same model, where the first dimension of every input and output that is 1 may be anything.

    Raises `ValueError` or `IndexError` where these are not the messages of a model.
    """
    changed = bytearray(model)
    spans = [(0, len(model))]
    for fields in SHAPES:
        spans = [inner for outer in spans for field in fields for inner in _within(model, outer, field)]
    for shape in spans:
        start, end = next(_within(model, shape, DIMENSION), (0, 0))
        if model[start:end] == ONE:
            changed[start:end] = ANY
    return bytes(changed)


def _within(data: bytes, span: tuple[int, int], wanted: int) -> Iterator[tuple[int, int]]:
    """Where the messages of one field lie within a message."""
    place, end = span
    while place < end:
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == _BYTES:
            size, place = _varint(data, place)
            if tag >> 3 == wanted:
                yield place, place + size
            place += size
        elif kind == _VARINT:
            _, place = _varint(data, place)
        elif kind in (_FIXED64, _FIXED32):
            place += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"no field has the kind {kind}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where what follows begins."""
    number, shift = 0, 0
    while True:
        byte = data[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place
