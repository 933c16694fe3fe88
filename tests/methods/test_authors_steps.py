"""Steps of the papers' methods against what their authors' own code computed, in double precision.

The numbers below were made once by running the code that is named beside them, with torch 2.13 on a CPU and float64 as
its default type. That code was changed only where today's torch, a machine without a GPU or double precision ask for
it, and to be given what it would have drawn. First weights and data are made by arithmetic, the same there and here;
weights are numbered in the order that they have here.
"""

import math
from dataclasses import replace

import pytest
import torch

import polyarch as pa
from polyarch.core import Batch, Feed, Problem
from polyarch.data.likelihood import Classification
from polyarch.data.task import Split, TaskShape
from polyarch.distributions import Categorical, exponential, uniform
from polyarch.methods import Balenas, Darts, StochasticArchitectures, VariationalDepth
from polyarch.spaces import Dense, PerExample, Sparse
from polyarch.streams import Streams
from polyarch.training.natural import Posterior, deviation, vadam

TOLERANCE = 1e-10
SINGLE = 3e-7
"""Of what the library rounds to single precision."""


def values(number, *shape):
    """Numbers between -1 and 1 in no order that shows, others for every `number`; exact on any machine."""
    i = torch.arange(math.prod(shape)) + 1000 * number
    return ((31 * i * i + 17 * i) % 10_007).double().reshape(shape) / 5003 - 1


def first_values(number, name, shape):
    """Of one repeat's tensor: scales around 1, shifts around 0, weights by the root of how many are summed."""
    own = values(number, *shape)
    if name.startswith("own."):
        return 1 + own
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.3 * own
    if name.endswith("bias"):
        return 0.3 * own
    return own / math.sqrt(math.prod(shape[1:]))


def started(method, space, shape, data, prior=None):
    """Problem and state before the first step, in double precision."""
    supernet = space.supernet(shape).double()
    likelihood = Classification(shape.outputs)
    problem = Problem(space, supernet, likelihood, prior or uniform(space.decisions), data)
    state = method.init(problem, [Streams(0)], None)
    moving = [name for name, value in state.belief.items() if value.requires_grad]
    for group in (state.belief, state.optimiser):
        group.update({name: v.detach().double() if v.is_floating_point() else v for name, v in group.items()})
    for name in moving:
        state.belief[name].requires_grad_()
    with torch.no_grad():
        for number, (name, value) in enumerate(state.weights.items()):
            value[0] = first_values(number, name, value[0].shape)
    return problem, state


def batches(split, size):
    """Of one repeat, in order."""
    return [Batch(x[None], y[None]) for x, y in zip(split.x.split(size), split.y.split(size), strict=True)]


def feed_of(method, **given):
    """A step's batch from each split, at the rates of the first epoch."""
    schedule = {name: torch.tensor(value, dtype=torch.float64) for name, value in method.schedule(0).items()}
    return Feed({name: [batch] for name, batch in given.items()}, {}, schedule)


def copied(state):
    return {name: value.detach().clone() for name, value in state.tensors().items()}


def groups(tensors):
    """Tensors of a state by what they are of: parts of the network, its statistics, and belief by its own names."""
    found = {}
    for name, value in tensors.items():
        kind, _, own = name.partition("/")
        if kind == "weights":
            found.setdefault(own.removeprefix("network.").partition(".")[0], []).append(value)
        elif kind == "buffers" and value.is_floating_point():
            found.setdefault("statistics", []).append(value)
        elif kind == "belief" or own.startswith("belief."):
            found[own.rpartition(".")[2]] = [value]
    return found


def summary(parts):
    """Two numbers that change with any element: the norm, and a sum by weights that tells elements apart."""
    flat = torch.cat([part.detach().flatten() for part in parts])
    return flat.norm().item(), (flat * values(0, len(flat))).sum().item()


def assert_summary(parts, expected, what):
    for found, number in zip(summary(parts), expected, strict=True):
        assert abs(found - number) <= TOLERANCE * expected[0], (what, found, number)


def assert_changed(state, before, expected):
    """How far the tensors of a state went from where they began, group by group."""
    now = groups({name: value.detach() - before[name] for name, value in state.tensors().items()})
    for what, numbers in expected.items():
        assert_summary(now[what], numbers, what)


# ---------------------------------------------------------------------------------------------------------------------
# Variational depth search: cambridge-mlg/arch_uncert at d6bd84f, MF_BNN_cat.fit with variational_categorical and its
# defaults, on arq_uncert_fc_resnet(2, 3, 4, 3) and arq_uncert_conv2d_resnet(2, 3, 4, 2, 3), prior 0.85^(1 + i). Three
# batches of 6 of 18 examples. Their q is kept between 1e-10 and 1 - 1e-10 inside the KL, ours is not: here it is far
# from both.

DEPTH_PRIOR = (0.31381163456635, 0.2667398893814, 0.22672890597419, 0.19271957007806)
DEPTH = {
    "linear": {
        "losses": (1.2704714539223, 1.114640275795, 1.2131210350571),
        1: {
            "stem": (0.027220188216367, -0.0099830936172123),
            "blocks": (0.01903635283736, 0.0050995318178984),
            "head": (0.087611390631211, -0.05769973127183),
            "statistics": (0.3732456092779, 0.18348718898747),
        },
        3: {
            "stem": (0.077207152903706, -0.03162981618578),
            "blocks": (0.042627342281295, 0.0067904855238894),
            "head": (0.25305582166375, -0.16938961611201),
            "statistics": (0.93097379164451, 0.48634809170182),
        },
        "logits": {
            1: (0.0022596387851733, 0.0013362246716255, -0.0032617331402992, -0.00033413031649957),
            3: (0.0070286467215594, 0.0041940078900086, -0.01040674290439, -0.00081591170717844),
        },
        "evaluated": 1.1006457029259,
    },
    "conv": {
        "losses": (1.1713154794834, 1.1262085921629, 1.1339694427441),
        1: {
            "stem": (0.05967499877035, 0.0055549372494492),
            "blocks": (0.040049211790313, -0.026499171448054),
            "head": (0.075388966445243, -0.052735435421106),
            "statistics": (0.84800046860848, 0.19539281019385),
        },
        3: {
            "stem": (0.1127240681499, 0.00028099914216943),
            "blocks": (0.074911136012363, -0.040257714743891),
            "head": (0.15116236197501, -0.032966230893993),
            "statistics": (1.9419196982063, 0.53831020026043),
        },
        "logits": {
            1: (0.00058269336212315, -0.00020657376603778, 8.4022579773638e-05, -0.00046014217585902),
            3: (0.0022024459052074, -0.00066730037129442, -0.0003723963387186, -0.0011627491951944),
        },
        "evaluated": 1.1074922738137,
    },
}


@pytest.mark.parametrize(("block", "inputs"), [("linear", (2,)), ("conv", (2, 9, 8))])
def test_variational_depth(block, inputs):
    """Loss, weights, logits and statistics of three steps; the released code shares the output block's statistics."""
    expected, size = DEPTH[block], 6
    space = pa.spaces.ResidualDepth(max_depth=3, width=4, block=block, head_statistics="shared")
    prior = Categorical(space.decisions, torch.tensor([DEPTH_PRIOR], dtype=torch.float64).log())
    assert exponential(space.decisions).probs()["depth"].tolist() == pytest.approx(DEPTH_PRIOR, rel=SINGLE)
    train = Split(values(900, 18, *inputs), torch.arange(18) % 3)
    method = VariationalDepth(update="sgd")
    problem, state = started(method, space, TaskShape(inputs, 3), {"train": train}, prior)
    before = copied(state)
    for step, (batch, loss) in enumerate(zip(batches(train, size), expected["losses"], strict=True), 1):
        told = method.step(problem, state, feed_of(method, train=batch))
        assert -told.metrics["elbo"].item() / 18 == pytest.approx(loss, rel=TOLERANCE)  # theirs is per example
        if step in expected:
            assert_changed(state, before, expected[step])
            assert state.belief["logits"][0].tolist() == pytest.approx(expected["logits"][step], rel=TOLERANCE)
    evaluated = method.evaluate(problem, state, "train")["log_likelihood"]
    assert -evaluated.item() == pytest.approx(expected["evaluated"], rel=TOLERANCE)


# ---------------------------------------------------------------------------------------------------------------------
# Stochastic architectures (NSA-id): thudzj/NSA at fddfb41, train() of main_s.py with SGD as main() makes it, on WRN of
# models/wrn_r.py with width 1, 8 nodes, learn_aggr, aux, aux_weight 0.1 and the architectures of seeds 1 to 3, which
# WIRINGS writes out. Three batches of 6 images, each image under the architecture of its number; the loss is without
# the auxiliary classifier's, which training adds.

WIRINGS = (
    "4<-2,5<-1,5<-3,6<-1,8<-5,9<-1,9<-4,9<-6,9<-7"
    "|4<-1,5<-0,5<-1,6<-1,7<-1,7<-3,7<-4,8<-3,9<-2,9<-5,9<-6"
    "|2<-0,4<-0,5<-1,5<-2,6<-1,6<-2,6<-4,7<-1,7<-2,8<-0,8<-2,8<-3,8<-4,9<-5,9<-7 "
    "3<-0,5<-0,5<-3,6<-2,6<-4,7<-4,7<-5,8<-5,9<-2,9<-3,9<-6"
    "|3<-0,3<-1,7<-1,7<-2,8<-0,8<-2,8<-5,9<-7"
    "|4<-1,5<-0,5<-1,6<-1,6<-2,6<-3,6<-4,7<-0,7<-3,7<-4,8<-3,8<-4,8<-5,8<-6,9<-2,9<-5 "
    "4<-2,6<-0,7<-2,7<-3,8<-5,9<-0"
    "|2<-0,4<-0,4<-1,6<-0,7<-2,7<-5,8<-1,8<-2,8<-4,9<-1,9<-2,9<-3,9<-7"
    "|3<-0,3<-1,5<-0,9<-2,9<-5"
)
WIRING_NUMBERS = ((0, 1, 2, 0, 2, 1), (2, 2, 0, 1, 0, 0), (1, 0, 2, 2, 1, 1))
WIRING = {
    "losses": (1.6196161450465, 1.5884855667654, 1.695056656324),
    1: {
        "stem": (0.11820314826217, -0.0017756739054117),
        "stages": (0.5493786650265, -0.02023135854846),
        "transitions": (0.083089451386281, 0.0066741566915579),
        "head": (0.06473768714646, -0.056931253944684),
        "auxiliary": (0.22877925278532, -0.10131553116459),
        "own": (0.0069646996183073, 0.0010536955396846),
        "statistics": (4.1489512048742, -0.28318897015746),
    },
    3: {
        "stem": (0.27368673193582, -0.027305790457059),
        "stages": (1.2630187356482, -0.53021901328536),
        "transitions": (0.22299186260144, 0.18528636136608),
        "head": (0.13427604175075, -0.015664322949995),
        "auxiliary": (0.59374381634888, 0.30101791193489),
        "own": (0.017803138685603, 0.001660932136322),
        "statistics": (11.177970370194, -0.1272933293902),
    },
    "outputs": (
        (0.0042502031619738, -0.025215577045228, 0.054183581140186, 0.038392805039421, 0.069608374665989),
        (-0.012946855268232, -0.078960973541424, 0.022521815755125, 0.031903479375532, 0.092539962363841),
        (0.0063317623063753, -0.032586314401143, 0.0011921140201821, 0.042641725779883, 0.086670418565202),
    ),
}


def test_stochastic_architectures():
    """Weights of links, conditional batch norm and all else after three steps, every image under its own wiring."""
    space = pa.spaces.Wiring(wirings=WIRINGS, own_aggregation=True, own_affine=True, auxiliary=True)
    train = Split(values(900, 18, 3, 32, 32), 7 * torch.arange(18) % 5)
    method = StochasticArchitectures()
    problem, state = started(method, space, TaskShape((3, 32, 32), 5), {"train": train})
    before = copied(state)
    for step, (batch, numbers) in enumerate(zip(batches(train, 6), WIRING_NUMBERS, strict=True), 1):
        # Numbers between 0 and 1, the first of which draws from the list.
        drawn = ((torch.tensor(numbers) + 0.5) / 3).view(1, -1, 1).expand(-1, -1, len(space.decisions))
        told = method.step(problem, state, feed_of(method, train=replace(batch, draws={"uniform": drawn})))
        assert -told.metrics["log_likelihood"].item() == pytest.approx(WIRING["losses"][step - 1], rel=TOLERANCE)
        if step in WIRING:
            assert_changed(state, before, WIRING[step])

    # In evaluation, one wiring for all. Asked for number 0, their forward pass takes it for none and draws; what is
    # expected of it was made by letting it draw 0 for every image.
    problem.supernet.eval()
    for member, expected in zip(space.members, WIRING["outputs"], strict=True):
        choices = torch.tensor(member.choices)
        views = Sparse(member.choices), Dense(choices[None]), PerExample(choices.expand(1, 2, -1))
        for view in views:
            found = problem.supernet(train.x[None, :2], view)[0, 0]
            assert found.tolist() == pytest.approx(expected, rel=TOLERANCE)


# ---------------------------------------------------------------------------------------------------------------------
# VAdam, by which BaLeNAS moves belief: emtiyaz/vadam at d8ea6bd, Vadam.step with N = 25,000, prior precision 1, lr 3e-4
# and betas (0.5, 0.999), on the sum of scales * sin(parameters), scales from 1e-4 to 1. torch.normal gave
# 2 * values(710), 2 * values(711), ... in turn. Two cases, by draws per step and initial precision.

VADAM_START, VADAM_SCALES = values(700, 6, 5), 10 ** (2 * values(701, 6, 5) - 2)
VADAM = {
    (1, 1.0): {
        1: {
            "mean": (0.0015723124490769, -0.00014676000712384),
            "first": (0.65754438359422, 0.047884764157456),
            "s": (0.00078762611555999, -0.00018540910233107),
            "deviation": (4.8874684414372, -6.7908149857262),
            "draw": (8.1661383587515, -5.3102099963288),
        },
        3: {
            "mean": (0.0034998097047127, 0.0012361019220004),
            "first": (0.95854466951751, -0.094431151600287),
            "s": (0.0018375653480828, -7.6200318652588e-05),
            "deviation": (4.6987107339234, -6.4509440037876),
            "draw": (7.0500765982264, -5.8245949023116),
        },
    },
    (2, 4.0): {
        1: {
            "mean": (0.0005001777082877, 0.00022119954626309),
            "first": (0.50702824778297, -0.055968755344792),
            "s": (0.001101323343115, -0.00074158566666009),
            "deviation": (2.5698254136121, -3.7314425614987),
            "draw": (4.8905673873695, -8.6128820009613),
        },
        3: {
            "mean": (0.0018278259374438, 0.00096441486580879),
            "first": (1.0636833111768, -0.18140280838693),
            "s": (0.0024045388795371, -0.00054875018562995),
            "deviation": (2.4710291824158, -3.5821347986008),
            "draw": (4.8814463021337, -7.6642661523347),
        },
    },
}


def vadam_draws(mean, precision, step, samples):
    """The parameters that gradients are taken at, and their noise: [samples, ...] each."""
    noise = torch.stack([2 * values(710 + step * samples + k, 6, 5) for k in range(samples)]).unsqueeze(1)
    return mean.detach() + precision.rsqrt() * noise, noise


def assert_vadam(mean, first, precision, last_draw, expected):
    curvature = Posterior(mean, precision, 25_000, 1.0).curvature()
    found = {"mean": mean.detach() - VADAM_START, "first": first, "s": curvature, "draw": last_draw}
    for what, value in found.items():
        assert_summary([value], expected[what], what)
    assert summary([deviation(precision).double()]) == pytest.approx(expected["deviation"], rel=SINGLE)


@pytest.mark.parametrize(("samples", "precision"), VADAM)
def test_vadam(samples, precision):
    expected = VADAM[samples, precision]
    mean, steps = VADAM_START.clone()[None], torch.zeros(1, dtype=torch.float64)
    belief, first = Posterior(mean, torch.full_like(mean, precision), 25_000, 1.0), torch.zeros_like(mean)
    lr = torch.tensor(3e-4, dtype=torch.float64)
    for step in range(3):
        drawn, _ = vadam_draws(mean, belief.precision, step, samples)
        vadam(belief, VADAM_SCALES * drawn.cos(), first, steps, lr=lr, betas=(0.5, 0.999))
        if step + 1 in expected:
            assert_vadam(mean, first, belief.precision, drawn[-1], expected[step + 1])


@pytest.mark.parametrize(("samples", "precision"), VADAM)
def test_balenas_moves_belief_by_vadam(samples, precision):
    """With its own settings, and the mixtures that it draws."""
    expected = VADAM[samples, precision]
    space, method = pa.spaces.NasBench201(channels=2, cells=1), Balenas(samples=samples, initial_precision=precision)
    data = dict.fromkeys(("train", "search"), Split(values(900, 4, 1, 4, 4), torch.arange(4) % 2))
    problem, state = started(method, space, TaskShape((1, 4, 4), 2), data)
    with torch.no_grad():
        state.belief["mean"].copy_(VADAM_START)
    for step in range(3):
        drawn, noise = vadam_draws(state.belief["mean"], state.belief["precision"], step, samples)
        [batch] = batches(data["train"], 4)
        feed = feed_of(method, train=replace(batch, draws={"noise": {"normal": noise.transpose(0, 1)}}))
        for k in range(samples):
            mixed = torch.stack(method.mixture(space, state.belief, {"normal": noise[k]}, feed.schedule).weights, 1)
            torch.testing.assert_close(mixed.detach(), drawn[k].softmax(-1), rtol=4 * SINGLE, atol=0)
        method.move_belief(problem, state, [[VADAM_SCALES * alpha.cos()] for alpha in drawn], feed)
        if step + 1 in expected:
            kept = state.belief["mean"], state.optimiser["belief.mean.first"], state.belief["precision"]
            assert_vadam(*kept, drawn[-1], expected[step + 1])


# ---------------------------------------------------------------------------------------------------------------------
# DARTS: quark0/darts at f276dd3, train() of cnn/train_search.py with Architect and its defaults, with and without
# --unrolled, on Network(C=2, 5 classes, 5 layers), whose cells are normal, reduction, normal, reduction, normal. Three
# batches of 4 images for weights and for alpha. In every step the gradient of weights is clipped. Adam is that
# of torch 2.13: older ones added their 1e-8 before the second moment was corrected.

DARTS = {
    "first": {
        "losses": (1.5074801554938, 1.5028708661217, 1.5007989478247),
        "search_losses": (1.7746864601623, 1.2776631971993, 1.7463637958833),
        1: {
            "stem": (0.084313359183597, -0.0019037677342773),
            "cells": (0.089562067944884, 0.060291198802938),
            "head": (0.022248172637676, -0.013065551815032),
            "statistics": (10.181794310112, 2.0737357135507),
            "alpha": (0.0044899812026057, 0.00094360794069778),
            "first": (0.97296956004687, 0.24613510003652),
            "second": (0.00087138701151172, -0.00093742645981632),
        },
        3: {
            "stem": (0.28380232492991, -0.010849682987087),
            "cells": (0.30942393903062, 0.324809230848),
            "head": (0.05661805806415, 0.010052049557926),
            "statistics": (24.978190021204, 4.8198883034844),
            "alpha": (0.0075908338746033, -0.00085824952998598),
            "first": (1.0477343120173, 0.10791151480794),
            "second": (0.0016802258941047, -0.0018182698460218),
        },
    },
    # Statistics aside: there the passes that look ahead leave theirs, here none.
    "second": {
        "losses": (1.5076308573899, 1.5016304573178, 1.4148644272556),
        "search_losses": (1.992888802486, 1.5385644069609, 2.1868342518315),
        1: {
            "stem": (0.083963065191326, -0.0020424226698178),
            "cells": (0.089930506997244, 0.049420110776468),
            "head": (0.022086087044122, -0.012975475657089),
            "alpha": (0.004489988387251, -0.0019389958180607),
            "first": (6.4816224137767, 0.75793523309482),
            "second": (0.029278101367327, 0.0054352517426403),
        },
        3: {
            "stem": (0.28076176115455, -0.007412655725282),
            "cells": (0.30258528747947, 0.26577804074241),
            "head": (0.060240399662892, 0.014049625563361),
            "alpha": (0.0080224817388537, -0.0034371370911433),
            "first": (6.3194679520909, 1.25113429193),
            "second": (0.05178596478081, -0.016078369803644),
        },
    },
}


@pytest.mark.parametrize("order", DARTS)
def test_darts(order):
    """Through their whole network: alpha with Adam's moments, then weights, and the statistics of both passes."""
    expected, method = DARTS[order], Darts(objective={"order": order})
    data = {
        "train": Split(values(900, 12, 3, 8, 8), 7 * torch.arange(12) % 5),
        "search": Split(values(950, 12, 3, 8, 8), (3 * torch.arange(12) + 1) % 5),
    }
    space = pa.spaces.Darts(channels=2, layers=5)
    problem, state = started(method, space, TaskShape((3, 8, 8), 5), data)
    with torch.no_grad():
        state.belief["alpha"].copy_(torch.cat([values(800, 14, 8), values(801, 14, 8)]))
    before = copied(state)
    for step in (1, 2, 3):
        train, search = (batches(split, 4)[step - 1] for split in data.values())
        feed = feed_of(method, train=replace(train, draws={"noise": {}}), search=search)
        told = method.step(problem, state, feed).metrics
        assert -told["log_likelihood"].item() == pytest.approx(expected["losses"][step - 1], rel=TOLERANCE)
        assert -told["search_log_likelihood"].item() == pytest.approx(
            expected["search_losses"][step - 1], rel=TOLERANCE
        )
        if step in expected:
            assert_changed(state, before, expected[step])
