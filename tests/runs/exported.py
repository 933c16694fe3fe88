"""Exported files, read as somebody does who has no polyarch."""

import importlib.util

import numpy as np
import torch

QUICK_SESSION = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}


def of_onnx(content, *given):
    """What ONNX Runtime says, by name, of each of several sets of arrays by name; `content` is a path or bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    for name, value in QUICK_SESSION.items():
        setattr(options, name, value)
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == list(given[0])
    assert all(value.shape[0] == "batch" for value in (*session.get_inputs(), *session.get_outputs()))
    names = [value.name for value in session.get_outputs()]
    return [dict(zip(names, session.run(None, own), strict=True)) for own in given]


def of_program(path, given, by_name=False):
    """What a program says."""
    return called(torch.export.load(path).module(), given, by_name)


def of_source(path, given, by_name=False):
    """What the file of Python beside weights says."""
    return called(module_at(path.with_suffix(".py")).load(), given, by_name)


def module_at(path):
    spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(network, given, by_name):
    tensors = {name: torch.from_numpy(value) for name, value in given.items()}
    with torch.no_grad():
        answers = network(**tensors) if by_name else network(*tensors.values())
    return {name: value.numpy() for name, value in answers.items()}


def apart(found, wanted):
    """The largest difference of all answers, which must have the same names."""
    assert list(found) == list(wanted)
    return max(np.abs(found[name] - np.asarray(wanted[name])).max() for name in wanted)
