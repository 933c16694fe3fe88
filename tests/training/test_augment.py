from itertools import product

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy.stats import chisquare
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from polyarch import PolyarchError
from polyarch.data.preprocess import Standardise
from polyarch.training.augment import Augment
from polyarch.training.capture import CapturedStep

SHAPE = (3, 7, 5)  # not square, so that rows and columns cannot be mixed up
EVERY = [
    Augment(crop=crop, flip=flip, cutout=cutout)
    for crop, flip, cutout in product((0, 2, 5), (False, True), (0, 1, 4, 5))
]


def images(repeats, batch, shape=SHAPE, dtype=torch.float32):
    """No two values are equal and none is 0, so that every pixel tells where it came from."""
    count = repeats * batch * shape[0] * shape[1] * shape[2]
    return torch.arange(1, count + 1, dtype=dtype).view(repeats, batch, *shape)


def drawn(augment, repeats, batch, shape=SHAPE):
    """Of one batch, [repeats, batch, ...]."""
    each = [augment.draw_batches(shape, 1, batch, torch.Generator().manual_seed(seed)) for seed in range(repeats)]
    return {name: torch.stack([d[name][0] for d in each]) for name in each[0]}


def one_by_one(augment, x, draws, black):
    """The published order of operations on each image by itself."""
    out = np.empty_like(x)
    for r, b in np.ndindex(x.shape[:2]):
        image, (channels, height, width) = x[r, b], x.shape[2:]
        if augment.crop:
            p = augment.crop
            padded = np.empty((channels, height + 2 * p, width + 2 * p), x.dtype)
            padded[:] = black
            padded[:, p : p + height, p : p + width] = image
            top, left = draws["crop"][r, b]
            image = padded[:, top : top + height, left : left + width]
        if augment.flip and draws["flip"][r, b]:
            image = image[:, :, ::-1]
        image = image.copy()
        if augment.cutout:
            top, left = draws["cutout"][r, b] - augment.cutout // 2
            image[:, max(top, 0) : top + augment.cutout, max(left, 0) : left + augment.cutout] = 0
        out[r, b] = image
    return out


@pytest.mark.parametrize("augment", EVERY)
def test_equals_augmenting_one_image_after_another(augment):
    x, draws, black = images(2, 40), drawn(augment, 2, 40), torch.tensor([-1.0, -2.0, -3.0]).view(3, 1, 1)
    arrays = {name: value.numpy() for name, value in draws.items()}
    kept = x.clone()
    for given, padding in ((black, black.numpy()), (None, np.zeros((3, 1, 1)))):
        expected = one_by_one(augment, x.numpy(), arrays, padding)
        np.testing.assert_array_equal(augment.apply(x, draws, given).numpy(), expected)
    assert torch.equal(x, kept)


def test_a_padded_and_standardised_image_equals_a_standardised_one_padded_with_standardised_black():
    raw = torch.randint(1, 256, (1, 20, *SHAPE), generator=torch.Generator().manual_seed(0)).float()
    mean, std = torch.tensor([90.0, 120.0, 30.0]), torch.tensor([60.0, 50.0, 9.0])
    standardise = Standardise(mean.view(3, 1, 1), std.view(3, 1, 1))
    augment = Augment(crop=3, flip=True)
    draws = drawn(augment, 1, 20)
    black = standardise(torch.zeros(3, 1, 1))
    before = standardise(augment.apply(raw, draws))
    assert torch.equal(augment.apply(standardise(raw), draws, black), before)


def test_nothing_is_drawn_or_done_when_all_is_off():
    augment, x = Augment(), images(2, 3)
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert augment.draw_batches(SHAPE, 1, 3, generator) == {}
    assert torch.equal(generator.get_state(), before)
    assert augment.apply(x, {"noise": torch.zeros(2, 5)}) is x
    augment.check((2,))


def test_a_centred_crop_without_mirroring_changes_nothing():
    x = images(2, 3)
    draws = {"crop": torch.full((2, 3, 2), 4), "flip": torch.zeros(2, 3, dtype=torch.bool)}
    assert torch.equal(Augment(crop=4, flip=True).apply(x, draws, torch.ones(3, 1, 1)), x)


def test_mirroring_twice_changes_nothing():
    x, draws = images(1, 4), {"flip": torch.tensor([[True, False, True, False]])}
    augment = Augment(flip=True)
    once = augment.apply(x, draws)
    assert torch.equal(once[0, 0], x[0, 0].flip(-1))
    assert torch.equal(once[0, 1], x[0, 1])
    assert torch.equal(augment.apply(once, draws), x)


@pytest.mark.parametrize(
    ("side", "centre", "area"),
    [
        (4, (0, 0), 2 * 2),
        (4, (0, 9), 2 * 3),
        (4, (9, 0), 3 * 2),
        (4, (9, 9), 3 * 3),
        (4, (5, 5), 4 * 4),
        (3, (0, 0), 2 * 2),
        (3, (9, 9), 2 * 2),
        (3, (0, 5), 2 * 3),
        (1, (9, 0), 1),
        (10, (5, 5), 10 * 10),
        (10, (0, 0), 5 * 5),
    ],
)
def test_a_square_is_clipped_at_the_border(side, centre, area):
    out = Augment(cutout=side).apply(images(1, 1, (2, 10, 10)), {"cutout": torch.tensor([[centre]])})
    assert (out == 0).sum((0, 1, 3, 4)).tolist() == [area, area]
    assert (out[0, 0, :, centre[0], centre[1]] == 0).all()


def test_repeats_do_not_touch_each_other():
    augment = Augment(crop=3, flip=True, cutout=3)
    x, draws = images(2, 6), drawn(augment, 2, 6)
    together = augment.apply(x, draws)
    for repeat in range(2):
        alone = augment.apply(x[repeat : repeat + 1], {k: v[repeat : repeat + 1] for k, v in draws.items()})
        assert torch.equal(together[repeat : repeat + 1], alone)
    shared = x[:1].expand(2, -1, -1, -1, -1)  # a full batch is one piece of memory for all repeats
    assert torch.equal(augment.apply(shared, draws), augment.apply(shared.contiguous(), draws))
    assert not torch.equal(together[0], augment.apply(shared, draws)[1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_of_the_images_is_kept(dtype):
    augment = Augment(crop=2, flip=True, cutout=2)
    x = images(1, 2, (3, 4, 4), dtype)
    assert augment.apply(x, drawn(augment, 1, 2, (3, 4, 4)), torch.ones(3, 1, 1)).dtype == dtype


def test_a_step_with_it_can_be_captured():
    augment = Augment(crop=4, flip=True, cutout=4)
    with FakeTensorMode() as mode:
        x = mode.from_tensor(images(2, 6))
        out = augment.apply(x, drawn(augment, 2, 6), mode.from_tensor(torch.zeros(3, 1, 1)))
        assert out.shape == x.shape
        assert augment.apply(x, drawn(augment, 2, 6)).shape == x.shape


@pytest.mark.cuda
def test_captured_it_follows_the_draws():
    augment, x, black = Augment(crop=4, flip=True, cutout=4), images(2, 6), torch.ones(3, 1, 1)
    places = {name: torch.zeros_like(value, device="cuda") for name, value in drawn(augment, 2, 6).items()}
    on_device, black_there = x.cuda(), black.cuda()
    state = {"none": torch.zeros(1, device="cuda")}
    captured = CapturedStep(lambda: augment.apply(on_device, places, black_there), state, captures=True)
    for seed in range(3):
        draws = drawn(augment, 2, 6 + seed)
        draws = {name: value[:, seed:] for name, value in draws.items()}
        for name, place in places.items():
            place.copy_(draws[name])
        assert torch.equal(captured().cpu(), augment.apply(x, draws, black))


def test_a_rank_takes_its_slice_of_the_draws():
    augment = Augment(crop=3, flip=True, cutout=3)
    x, draws = images(2, 6), drawn(augment, 2, 6)
    whole = augment.apply(x, draws)
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        assert torch.equal(augment.apply(x[:, 3:], draws), whole[:, 3:])
    finally:
        dist.destroy_process_group()


def test_draws_have_fixed_shapes_and_types_and_follow_the_seed():
    augment = Augment(crop=2, flip=True, cutout=3)
    first, again = (augment.draw_batches(SHAPE, 2, 4, torch.Generator().manual_seed(3)) for _ in range(2))
    other = augment.draw_batches(SHAPE, 2, 4, torch.Generator().manual_seed(4))
    assert {name: (tuple(v.shape), v.dtype) for name, v in first.items()} == {
        "crop": ((2, 4, 2), torch.int64),
        "flip": ((2, 4), torch.bool),
        "cutout": ((2, 4, 2), torch.int64),
    }
    for name, value in first.items():
        assert torch.equal(value, again[name])
        assert not torch.equal(value, other[name])


def test_draws_are_uniform_and_independent():
    draws = drawn(Augment(crop=2, flip=True, cutout=3), 1, 20_000)
    pairs = {"crop": (5, 5), "cutout": SHAPE[1:]}
    for name, (rows, columns) in pairs.items():
        cells = draws[name][0, :, 0] * columns + draws[name][0, :, 1]
        counts = cells.bincount(minlength=rows * columns)
        assert len(counts) == rows * columns
        assert chisquare(counts.numpy()).pvalue > 1e-3
    assert chisquare(draws["flip"][0].long().bincount().numpy()).pvalue > 1e-3


@pytest.mark.parametrize("augment", [Augment(crop=1), Augment(flip=True), Augment(cutout=1)])
def test_only_images_can_be_augmented(augment):
    augment.check((1, 8, 8))
    with pytest.raises(PolyarchError, match=r"needs images .* \[20\]; set crop=0"):
        augment.check((20,))


def test_sizes_must_fit_the_images():
    Augment(crop=5, flip=True, cutout=5).check(SHAPE)
    with pytest.raises(PolyarchError, match="crop is 6, more than images of 7x5 have; set crop to 5 or less"):
        Augment(crop=6).check(SHAPE)
    with pytest.raises(PolyarchError, match="cutout is 6, more than images of 7x5 have"):
        Augment(cutout=6).check(SHAPE)
    with pytest.raises(PolyarchError, match="crop is -1"):
        Augment(crop=-1)
    with pytest.raises(PolyarchError, match="cutout is -2"):
        Augment(cutout=-2)
