"""`polyarch cost`: what a network would cost."""

import pytest
from commandline import cli, refused

from polyarch.data.task import TaskShape
from polyarch.spaces import NasBench201, ResidualDepth

BEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
SKIP = "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|"
DARTS_V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], "
    "normal_concat=[2, 3, 4, 5], reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), "
    "('max_pool_3x3', 1), ('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], "
    "reduce_concat=[2, 3, 4, 5])"
)


def test_a_cell_of_the_benchmark():
    """The figures of NAS-Bench-201's own table on CIFAR-10; nothing else is in the object."""
    assert cli("cost", "--space", "nasbench201", "--arch", BEST, "--json").json == {
        "space": "nasbench201",
        "architecture": BEST,
        "parameters": 1_288_506,
        "macs": 184_730_250,
        "uncounted": ["add", "avg_pool2d", "batch_norm", "mean", "relu"],
    }


def test_a_published_network():
    """DARTS_V2 at evaluation size, the auxiliary tower left out."""
    space = ("--space", "polyarch.spaces.darts:Darts", "--set", "channels=36", "--set", "layers=20")
    assert cli("cost", *space, "--arch", DARTS_V2, "--json").json["parameters"] == 3_349_342


def test_classes_and_inputs():
    space = NasBench201(channels=4, cells=2)
    given = ("--space", "nasbench201", "--arch", SKIP, "--set", "channels=4", "--set", "space.cells=2")
    found = cli("cost", *given, "--classes", 7, "--input", "1X12x9", "--json").json
    network = space.evaluated().build(space.parse(SKIP), TaskShape((1, 12, 9), 7))
    assert found["parameters"] == sum(p.numel() for p in network.parameters())
    ten = cli("cost", *given, "--input", "1x12x9", "--json").json
    assert ten["parameters"] - found["parameters"] == 3 * (16 + 1)
    assert ten["macs"] - found["macs"] == 3 * (16 + 1)


def test_vectors():
    given = ("--space", "depth", "--arch", "depth=3", "--set", "max_depth=5", "--set", "width=8")
    found = cli("cost", *given, "--input", "2", "--classes", "2", "--json").json
    network = ResidualDepth(max_depth=5, width=8).build(ResidualDepth().parse("depth=3"), TaskShape((2,), 2))
    assert found["parameters"] == sum(p.numel() for p in network.parameters())


def test_time_is_measured_on_request():
    given = ("--space", "depth", "--arch", "depth=1", "--input", "2", "--latency", "--batch", 3, "--device", "cpu")
    found = cli("cost", *given, "--json").json
    assert found["seconds"] > 0
    assert (found["batch"], found["device"]) == (3, "cpu")
    said = cli("cost", *given)
    assert "ms for a batch of 3 on cpu" in said.out
    assert "parameters" in said.out


def test_words():
    said = cli("cost", "--space", "nasbench201", "--arch", BEST)
    assert (said.code, said.err) == (0, "")
    assert "1,288,506 parameters, 184,730,250 multiply-accumulates" in said.out
    assert "not counted: add, avg_pool2d, batch_norm, mean, relu" in said.out


def test_a_network_too_large_for_memory():
    given = ("--space", "nasbench201", "--arch", BEST, "--set", "channels=200000", "--input", "3x10000x10000")
    assert cli("cost", *given, "--json").json["parameters"] > 1e14


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--input", "32"), "needs images"),
        (("--input", "3x32"), "--input 3x32: write channels, height and width as 3x32x32"),
        (("--input", "3x0x32"), "write channels, height and width"),
        (("--input", "3x-1x32"), "write channels, height and width"),
        (("--input", "3x32x32x32"), "write channels, height and width"),
        (("--input", "threexfour"), "write channels, height and width"),
        (("--input", ""), "write channels, height and width"),
        (("--classes", "0"), "Invalid value for '--classes'"),
        (("--classes", "ten"), "Invalid value for '--classes'"),
        (("--latency", "--batch", "0"), "Invalid value for '--batch'"),
        (("--latency", "--device", "tpu"), "device must be auto, cpu, cuda or"),
        (("--set", "chanels=3"), "did you mean 'channels'?"),
        (("--set", "channels=0"), "channels is 0"),
        (("--set", "epochs=3"), "unknown setting 'epochs'"),
    ],
)
def test_bad_input(arguments, says):
    refused("cost", "--space", "nasbench201", "--arch", SKIP, *arguments, says=says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--arch", SKIP), "Missing option '--space'"),
        (("--space", "nasbench201"), "Missing option '--arch'"),
        (("--space", "nasbench", "--arch", SKIP), "did you mean 'nasbench201'?"),
        (("--space", "nasbench201", "--arch", "depth=1"), "is no cell of nasbench201"),
        (("--space", "depth", "--arch", SKIP, "--input", "2"), "says nothing of depth"),
        (("--space", "depth", "--arch", "depth=99", "--input", "2"), "99"),
    ],
)
def test_names(arguments, says):
    refused("cost", *arguments, says=says)
