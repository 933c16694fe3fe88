"""Calls as a text says them, `my_file:Network(width=64)`: read, and never run, so values are literals."""

from __future__ import annotations

import ast
from typing import Any

from polyarch.errors import PolyarchError

WANTED = "write values as Python does: numbers, texts in quotes, True, False, None, and lists of these"


def read_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """What is called, and the values that it is called with, by place and by name; none where there are no brackets."""
    path, brackets, rest = text.partition("(")
    if not brackets:
        return text, [], {}
    try:
        call = ast.parse(f"made({rest}", mode="eval").body
    except (SyntaxError, ValueError) as error:
        why = error.msg if isinstance(error, SyntaxError) else error
        raise PolyarchError(f"{text!r} is no call ({why}); {WANTED}") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise PolyarchError(f"{text!r} is not of the form {path}(width=64); {WANTED}")
    for keyword in call.keywords:
        if keyword.arg is None:
            raise PolyarchError(f"{text!r}: give every argument by itself, not by **")
    return (
        path,
        [_literal(text, node) for node in call.args],
        {str(keyword.arg): _literal(text, keyword.value) for keyword in call.keywords},
    )


def _literal(text: str, node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise PolyarchError(f"{text!r}: {ast.unparse(node)} is no plain value; {WANTED}") from None
