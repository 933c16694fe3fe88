"""Stages of P-DARTS: what goes on from one to the next, what runs, and how skips are held back."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.callbacks import Callback, Checkpoints
from polyarch.catalogue import METHODS
from polyarch.core import Stage
from polyarch.methods import Balenas, Darts, Drnas, Gdas
from polyarch.methods.pdarts import Progressive, survivors
from polyarch.runs.search import resume
from polyarch.settings import make, parsed, settings_of
from polyarch.spaces.choice import Dropout, choice_points, uniform
from polyarch.spaces.darts import EDGES, SKIP_DROPOUT
from polyarch.spaces.views import Soft
from polyarch.training.dry_run import prepare

FEW = pa.spaces.Darts(
    channels=2, layers=8, operations=("none", "max_pool_3x3", "avg_pool_3x3", "skip_connect", "dil_conv_3x3")
)
STAGES = ((1, 5, 0.1), (2, 4, 0.4), (3, 3, 0.7))
SHORT = {"epochs": 2, "warmup_epochs": 1, "batch_size": 12, "plan": {"stages": STAGES}}


@pytest.fixture(scope="module")
def staged(few_images, tmp_path_factory):
    """A search in three stages."""
    return pa.search(FEW, few_images, Darts(**SHORT), out=tmp_path_factory.mktemp("staged") / "run")


# ---------------------------------------------------------------------------------------------------------------------
# The rules.


def test_the_papers_stages():
    paper = METHODS["pdarts"].settings["plan.stages"]
    assert paper == ((5, 8, 0.1), (11, 5, 0.4), (17, 3, 0.7))
    found = Darts(plan={"stages": paper}, epochs=25, warmup_epochs=10).stages(FEW)
    assert [(stage.space.layers, stage.epochs) for stage in found] == [(5, 25), (11, 25), (17, 25)]
    assert {stage.space.skip_limit for stage in found} == {2}
    assert Darts().stages(FEW) == (Stage(FEW, 50),)


def test_the_likeliest_go_on():
    """Against sorting by hand; what was left out before never comes back, whatever its weight."""
    generator = torch.Generator().manual_seed(0)
    weights = [torch.rand(2, n, generator=generator) for n in (8, 8, 5)]
    still_open = torch.rand(2, 3, 8, generator=generator) < 0.8
    still_open[:, 2, 5:] = False
    found = survivors(weights, still_open, keep=3)
    for repeat, k in itertools.product(range(2), range(3)):
        allowed = [o for o in range(8) if still_open[repeat, k, o]]
        best = sorted(allowed, key=lambda o, row=weights[k][repeat]: -row[o])[:3]
        assert found[repeat, k].nonzero().flatten().tolist() == sorted(best)
    equal = survivors([torch.zeros(1, 8)], torch.ones(1, 1, 8, dtype=torch.bool), 5)
    assert equal.tolist() == [[[True] * 5 + [False] * 3]], "also where weights have come down to nothing"


def test_dropout_fades():
    """Linearly while belief rests, then from the whole again by exp(-0.2) per epoch."""
    method = Darts(epochs=25, warmup_epochs=10)
    shares = [Progressive().fading(method, epoch) for epoch in range(25)]
    assert shares[:10] == pytest.approx([(24 - epoch) / 25 for epoch in range(10)])
    assert shares[10:] == pytest.approx(np.exp(-0.2 * np.arange(15)).tolist())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("5:8", "LAYERS:OPERATIONS:DROPOUT"),
        ("5:8:much", "LAYERS:OPERATIONS:DROPOUT"),
        ("5:2:0.1", r"stages\[0\].operations is 2; it must be at least 3"),
        ("0:8:0.1", r"stages\[0\].layers is 0; it must be at least 1"),
        ("5:8:0.1,6:5:1.0", r"stages\[1\].dropout is 1.0; it must be at least 0 and below 1"),
        ("5:8:0.1,5:5:0.4", "must have more layers from stage to stage"),
    ],
)
def test_stages_that_make_no_sense(text, says):
    with pytest.raises(PolyarchError, match=says) as error:
        make(Darts, {"plan.stages": parsed(settings_of(Darts)["plan.stages"], text)})
    assert "\n" not in str(error.value)


def test_other_spaces_have_no_stages(tmp_path, images):
    with pytest.raises(PolyarchError, match="stages are for the space darts, not 'nasbench201'"):
        pa.search(pa.spaces.NasBench201(channels=2, cells=1), images, Darts(**SHORT), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Skips.


def read_out_by_hand(space, weights):
    """The normal cell of one architecture, edge by edge, with skips taken back one at a time."""
    rows = {
        edge: dict(zip(space.relaxation.simplices[0].options, weights[k].tolist(), strict=True))
        for k, edge in enumerate(EDGES)
    }
    while True:
        cell = {}
        for node in range(4):
            best = {}
            for source in range(node + 2):
                options = {name: w for name, w in rows[node, source].items() if name != "none"}
                best[source] = max(options.items(), key=lambda item: item[1])
            for source in sorted(best, key=lambda s, own=best: -own[s][1])[:2]:
                cell[node, source] = best[source]
        skips = {edge: weight for edge, (name, weight) in cell.items() if name == "skip_connect"}
        if len(skips) <= space.skip_limit:
            return {edge: name for edge, (name, _) in cell.items()}
        rows[min(skips, key=skips.get)]["skip_connect"] = -np.inf


@pytest.mark.parametrize("limit", [0, 2, 5])
def test_surplus_skips_are_taken_back(limit):
    space = pa.spaces.Darts(skip_limit=limit)
    generator = torch.Generator().manual_seed(limit)
    logits = torch.randn(len(space.relaxation.simplices), 20, 8, generator=generator)
    logits[:, :, 3] += 2  # as a collapse would have it
    weights = [row.softmax(-1) for row in logits]
    free = pa.spaces.Darts().relaxation.discretize(weights)
    found = space.relaxation.discretize(weights)
    for row, architecture in enumerate(space.decode(found)):
        expected = read_out_by_hand(space, [w[row] for w in weights])
        cells = dict(zip(("normal", "reduce"), (architecture.choices[:8], architecture.choices[8:]), strict=True))
        got = {(k // 2, c // 7): space._kept[c % 7] for k, c in enumerate(cells["normal"])}
        assert got == expected
        assert sum(name == "skip_connect" for name in got.values()) <= limit
    assert torch.equal(found[:, 8:], free[:, 8:]), "the reduction cell is left alone"


def test_a_limit_where_nothing_but_skips_may_stand():
    space = pa.spaces.Darts(operations=("none", "skip_connect"), skip_limit=0)
    assert space.relaxation.discretize([torch.rand(1, 2) for _ in space.relaxation.simplices]).shape == (1, 16)


def test_dropout_is_one_in_chance_and_in_mean():
    """Rate, scale, and that places, seeds and examples do not repeat each other."""
    x = torch.ones(64, 2 * 3, 10, 10)
    first, second = Dropout("d", salt=1), Dropout("d", salt=2)
    assert torch.equal(first(x), x), "nothing where nobody asks for it"
    first.selection = second.selection = torch.tensor([[[0.4, 17.0], [0.0, 5.0]]], dtype=torch.float64)
    found = first(x).unflatten(1, (2, 3))
    assert torch.equal(found[:, 1], torch.ones_like(found[:, 1])), "a repeat of rate 0"
    kept = found[:, 0]
    assert sorted(kept.unique().tolist()) == pytest.approx([0, 1 / 0.6])
    n = kept.numel()
    assert (kept > 0).float().mean().item() == pytest.approx(0.6, abs=4 * (0.24 / n) ** 0.5)
    other = second(x).unflatten(1, (2, 3))[:, 0]
    for a, b in ((kept, other), (kept[1:], kept[:-1]), (kept[..., 1:], kept[..., :-1])):
        both = ((a > 0) & (b > 0)).float().mean().item()
        assert both == pytest.approx(0.36, abs=4 * (0.36 * 0.64 / a.numel()) ** 0.5)


def test_the_numbers_behind_dropout_are_uniform():
    stats = pytest.importorskip("scipy.stats")
    for start in (0, 123_456_789):
        found = uniform(start + torch.arange(20_000)).numpy()
        assert stats.kstest(found, "uniform").pvalue > 0.01


def test_a_batched_repeat_drops_what_its_single_run_drops():
    x = torch.randn(4, 2 * 3, 5, 5)
    place = Dropout("d", salt=7)
    place.selection = torch.tensor([[[0.4, 17.0], [0.6, 5.0]]], dtype=torch.float64)
    both = place(x).unflatten(1, (2, 3))
    for repeat in range(2):
        own = Dropout("d", salt=7)
        own.selection = place.selection[:, repeat : repeat + 1]
        assert torch.equal(own(x.unflatten(1, (2, 3))[:, repeat]), both[:, repeat])


def test_only_skips_that_change_nothing_have_dropout(images):
    """Those of stride 2 have weights of their own, as in the authors' code."""
    supernet = pa.spaces.Darts(channels=2, layers=3).supernet(images.shape)
    found = {path for path, place in choice_points(supernet.network).items() if isinstance(place, Dropout)}
    # Two of three cells are reductions at 1 and 2 of 3; of a reduction's 14 edges, 8 come from the inputs.
    assert len(found) == 14 + 2 * 6
    assert len({place.salt for place in choice_points(supernet.network).values() if isinstance(place, Dropout)}) == len(
        found
    )


def test_training_passes_skips_through_dropout(images):
    method = Darts(**SHORT)
    problem, state, feed = prepare(method, FEW, images, images.seen(images.train), repeats=1)
    [batch] = feed.batches["train"]
    view = method.mixture(problem.space, state.belief, {}, feed.schedule)
    problem.supernet.train()
    with torch.no_grad():
        seen = method._loss(problem, state, feed, batch, 1, moves=False)
        rate = 0.1 * feed.schedule["dropout"].item()
        kept = {SKIP_DROPOUT: torch.tensor([[rate, batch.draws["dropout"][0, 1].item()]], dtype=torch.float64)}
        outputs = problem.supernet.outputs(batch.x, view, kept)[0]
        plain = problem.supernet(batch.x, view)
    expected = -problem.likelihood.log_likelihood(outputs, batch.y).mean(-1)
    assert torch.allclose(seen, expected)
    assert not torch.allclose(outputs, plain)


# ---------------------------------------------------------------------------------------------------------------------
# From stage to stage.


def test_options_that_were_left_out_do_not_run_and_change_nothing(images):
    """The mixture of what is open is the same whether the rest runs or not."""
    space = pa.spaces.Darts(channels=2, layers=3)
    supernet = space.supernet(images.shape).train()
    supernet.reset_parameters([torch.Generator().manual_seed(0)])
    generator = torch.Generator().manual_seed(1)
    is_open = torch.rand(len(space.relaxation.simplices), 8, generator=generator) < 0.5
    is_open[:, 4] = True
    logits = torch.randn(len(space.relaxation.simplices), 8, generator=generator).masked_fill(~is_open, -torch.inf)
    view = Soft(tuple(row.softmax(-1).unsqueeze(0) for row in logits))
    x, ran = torch.randn(1, 6, 1, 6, 6), []
    for place in choice_points(supernet.network).values():
        if hasattr(place, "options"):
            for option, module in enumerate(place.options):
                module.register_forward_hook(lambda *_, key=(place.name, option): ran.append(key))
    everything = supernet(x, view)
    assert len(set(ran)) == 8 * len(space.relaxation.simplices)
    ran.clear()
    supernet.keep_running(
        {s.name: row.nonzero().flatten().tolist() for s, row in zip(space.relaxation.simplices, is_open, strict=True)}
    )
    assert torch.allclose(supernet(x, view), everything, atol=1e-6)
    left = {(s.name, o) for s, row in zip(space.relaxation.simplices, is_open, strict=True) for o in range(8) if row[o]}
    assert set(ran) == left


def test_what_is_left_shrinks_from_stage_to_stage(staged, few_images):
    lines = staged.history()
    assert [(line["stage"], line["epoch"]) for line in lines] == [(s, e) for s in range(3) for e in (1, 2)]
    for line, left in zip(lines, (5, 5, 4, 4, 3, 3), strict=True):
        assert {sum(p > 0 for p in row) for row in line["probs"].values()} == {left}
    for before, after in itertools.pairwise(lines):
        for name, row in after["probs"].items():
            assert all(b > 0 for a, b in zip(row, before["probs"][name], strict=True) if a > 0), "nothing comes back"
    assert staged.space.layers == 3
    normal = str(staged.architecture).partition("normal_concat")[0]
    assert normal.count("'skip_connect'") <= 2
    assert staged.model()(few_images.train.x[:4]).shape == (4, 3)


@pytest.mark.parametrize("kind", [Drnas, Gdas, Balenas])
def test_every_belief_runs_in_stages(tmp_path, few_images, kind):
    plan = {"stages": ((1, 5, 0.1), (2, 3, 0.7))}
    run = pa.search(FEW, few_images, kind(**SHORT | {"plan": plan}), out=tmp_path / "run")
    for line, left in zip(run.history(), (5, 5, 3, 3), strict=True):
        assert {sum(p > 0 for p in row) for row in line["probs"].values()} == {left}
    assert run.space.layers == 2


class InterruptIn(Callback):
    """At the second evaluation of a stage, when the first is saved."""

    def __init__(self, stage):
        self.stage = stage

    def on_evaluation(self, evaluation):
        if (evaluation.metrics["stage"], evaluation.metrics["epoch"]) == (self.stage, 2):
            raise KeyboardInterrupt


def test_resumed_in_a_later_stage(tmp_path, few_images, staged):
    """Interrupted in the first and again in the second, it ends as if it had not been."""
    callbacks = [Checkpoints(seconds=0), InterruptIn(0)]
    with pytest.raises(KeyboardInterrupt):
        pa.search(FEW, few_images, Darts(**SHORT), out=tmp_path / "run", callbacks=callbacks)
    with pytest.raises(KeyboardInterrupt):
        resume(tmp_path / "run", task=few_images, callbacks=[Checkpoints(seconds=0), InterruptIn(1)])
    resumed = resume(tmp_path / "run", task=few_images)
    assert [{**line, "seconds": 0} for line in staged.history()] == [
        {**line, "seconds": 0} for line in resumed.history()
    ]
    for name, value in staged.belief.items():
        assert torch.equal(value, resumed.belief[name])
    assert staged.architecture == resumed.architecture


def test_belief_goes_from_stages_to_stages_alone(tmp_path, few_images, staged):
    """Also what is left of the options; without stages there is no place for it."""
    method = Darts(epochs=1, batch_size=12)
    plain = pa.search(replace(FEW, layers=1), few_images, method, out=tmp_path / "plain")
    for source, other in ((plain, Darts(**SHORT)), (staged, method)):
        with pytest.raises(PolyarchError, match="searched in other stages"):
            pa.search(FEW, few_images, other, out=tmp_path / "run", start=pa.Start(belief_from=source.folder))
        assert not (tmp_path / "run").exists()
