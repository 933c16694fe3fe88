"""A comparison on a Ray cluster of two nodes, one of which leaves: the real engine, on loopback."""

import time

import pytest
import torch
from comparing import begun, claimed, data, method, outcome

import polyarch as pa
from polyarch.errors import PolyarchError
from polyarch.runs.compare import carry_on
from polyarch.runs.grid import CLAIMS, RUNS
from polyarch.runs.workers import make_run

LOOPBACK = "127.0.0.2"
EPOCHS = 60
"""So many that a run takes long enough for a node to leave in the middle of it."""


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes with a processor each: the cluster, and the node that may leave."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": 1, "node_ip_address": LOOPBACK, "include_dashboard": False}
    own = Cluster(initialize_head=True, head_node_args=node)
    try:
        leaving = own.add_node(**node)
        ray.init(address=own.address, log_to_driver=False, logging_level="error")
        yield own, leaving
    finally:
        ray.shutdown()
        own.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_node_leaves_in_the_middle(cluster, tmp_path):
    nodes, leaving = cluster
    folder = tmp_path / "comparison"
    grid = begun(folder, seeds=(0, 1, 2), methods={"mine": method(epochs=EPOCHS)})
    assert len(grid.runs) == 12
    told = []

    def tell(text):
        told.append(text)
        if len(list((folder / RUNS).glob("*/result.json"))) >= 3 and leaving in nodes.worker_nodes:
            ends = time.monotonic() + 30
            while sum("free" not in path.read_text() for path in (folder / CLAIMS).glob("*-*")) < 2:
                assert time.monotonic() < ends, "both nodes should be at work"
                time.sleep(0.005)
            nodes.remove_node(leaving, allow_graceful=False)

    found = carry_on(folder, pa.Workers(ray=nodes.address), tell)
    assert leaving not in nodes.worker_nodes
    assert [len(row.found) for row in found.rows] == [3, 3, 3, 3]
    assert sum("is finished" in text for text in told) == 12
    assert any("a worker was lost" in text for text in told)
    assert sorted(claimed(folder).values()) == [1] * 11 + [2], "one was taken over, and none was made twice"

    before = torch.get_num_threads()
    torch.set_num_threads(grid.threads)
    for run in grid.runs:
        make_run(tmp_path / RUNS / run.name, grid.config(run), data())
        assert outcome(folder / RUNS / run.name) == outcome(tmp_path / RUNS / run.name)
    torch.set_num_threads(before)


def test_a_cluster_that_is_not_there_is_said_in_a_line(tmp_path):
    pytest.importorskip("ray")
    begun(tmp_path / "comparison", seeds=[0])
    with pytest.raises(PolyarchError, match="cannot join the Ray cluster at auto: "):
        carry_on(tmp_path / "comparison", pa.Workers(ray="auto"))
