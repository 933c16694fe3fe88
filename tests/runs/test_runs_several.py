"""Several inputs of one example: read, searched, asked, evaluated, reported and saved; what cannot be is refused."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import polyarch as pa
from polyarch import PolyarchError
from polyarch.report.page import write_report
from polyarch.runs.results import Networks
from polyarch.scores import candidates_of

COUNT, CPU = 120, pa.Compute("cpu")
RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(3, 5, size=(COUNT, 4)).astype(np.float32)
WORDS = RANDOM.integers(0, 9, size=(COUNT, 5))
PIXELS = RANDOM.integers(0, 256, size=(COUNT, 1, 6, 6)).astype(np.uint8)
LABELS = np.arange(COUNT) % 3
PARSEC = pa.methods.Parsec(epochs=1, samples=2, batch_size=20)


class Join(nn.Module):
    def __init__(self, product):
        super().__init__()
        self.product = product

    def forward(self, first, second):
        return first * second if self.product else first + second


class Two(nn.Module):
    """Numbers and words."""

    def __init__(self):
        super().__init__()
        self.numbers, self.words = nn.Linear(4, 6), nn.Embedding(9, 6)
        self.join = pa.Choice("join", {"add": Join(False), "multiply": Join(True)})
        self.head = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))

    def forward(self, x, words):
        assert words.dtype == torch.int64
        return self.head(self.join(self.numbers(x), self.words(words).mean(1)))


class Pictured(nn.Module):
    """An image and one number, by name, and an open depth."""

    def __init__(self):
        super().__init__()
        self.image, self.size = nn.Conv2d(1, 4, 3), nn.Linear(1, 4)
        self.depth = pa.Depth("depth", [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3)], nn.Linear(4, 1))

    def forward(self, image, size):
        return self.depth(self.image(image).mean((2, 3)) + self.size(size))


def searched(folder, given, y, factory=Two, method=PARSEC, **settings):
    task = pa.data.load((given, y), select=0.2, **settings)
    return pa.search(pa.ModuleSpace(factory), task, method, out=folder, compute=CPU)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return searched(tmp_path_factory.mktemp("runs") / "run", (NUMBERS, WORDS), LABELS)


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    given, y = {"size": NUMBERS[:, 0], "image": PIXELS}, 1000 + 50 * NUMBERS[:, 1]
    method = pa.methods.VariationalDepth(epochs=2, batch_size=20)
    return searched(tmp_path_factory.mktemp("named") / "run", given, y, Pictured, method)


class Pairs(Dataset):
    def __init__(self, *arrays, named=False):
        self.arrays, self.named = arrays, named

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        own = tuple(torch.from_numpy(array[index]) for array in self.arrays)
        return {"x": own[0], "words": own[1]} if self.named else own, int(LABELS[index])


def test_tuples_mappings_and_datasets_are_the_same_examples():
    tasks = [
        pa.data.load(((NUMBERS, WORDS), LABELS)),
        pa.data.load(((torch.from_numpy(NUMBERS), torch.from_numpy(WORDS)), LABELS)),
        pa.data.load(({"x": NUMBERS, "words": WORDS}, LABELS)),
        pa.data.load(Pairs(NUMBERS, WORDS)),
        pa.data.load(Pairs(NUMBERS, WORDS, named=True)),
    ]
    assert len({task.fingerprint for task in tasks}) == 1
    train = tasks[0].indices["train"].numpy()
    alone = pa.data.load((NUMBERS, LABELS))
    x, words = tasks[0].preprocess(tasks[0].train.x)
    assert torch.equal(x, alone.preprocess(alone.train.x))
    assert torch.equal(words, torch.from_numpy(WORDS[train]))
    by_name = tasks[2].preprocess(tasks[2].train.x)
    assert list(by_name) == ["x", "words"]
    assert torch.equal(by_name["words"], words)
    assert "inputs: 4 numbers and 5 tokens" in repr(tasks[0])
    other = pa.data.load(((NUMBERS, WORDS[::-1].copy()), LABELS))
    assert other.fingerprint != tasks[0].fingerprint


def test_two_inputs_train_as_one_that_holds_both(tmp_path):
    """A network that takes two halves learns the same as one that takes both side by side."""

    def whole():
        return nn.Sequential(pa.Choice("layer", {"a": nn.Linear(4, 3), "b": nn.Linear(4, 3, bias=False)}))

    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = whole()

        def forward(self, left, right):
            return self.layers(torch.cat([left, right], 1))

    one = searched(tmp_path / "one", NUMBERS, LABELS, whole)
    two = searched(tmp_path / "two", (NUMBERS[:, :1], NUMBERS[:, 1:]), LABELS, Halves)
    assert one.architecture == two.architecture
    assert torch.equal(one.predict(NUMBERS).probs, two.predict((NUMBERS[:, :1], NUMBERS[:, 1:])).probs)


def test_a_run_is_asked_in_every_way(run, named):
    test = run.task().test
    rows = run.task().indices["test"].numpy()
    given = (NUMBERS[rows], WORDS[rows])
    said = run.predict(given)
    assert torch.equal(said.probs, run.predict(test.x).probs)
    assert torch.equal(said.probs, pa.open_run(run.folder).predict(list(given)).probs)
    assert torch.equal(said.probs, run.predict(tuple(map(torch.from_numpy, given))).probs)
    model = run.model()
    outputs = model(*map(torch.from_numpy, given))
    assert torch.equal(outputs, model(test.x))
    accuracy = (outputs.argmax(-1) == test.y).float().mean().item()
    assert run.result["metrics"]["test"]["accuracy"] == pytest.approx(accuracy)
    found = Networks.of(run, run.architecture).evaluate(test)["selected"]
    assert found["accuracy"] == pytest.approx(accuracy)

    rows = named.task().indices["test"].numpy()
    given = {"image": PIXELS[rows], "size": NUMBERS[rows, :1]}  # in another order, and [n, 1]
    assert torch.equal(named.predict(given).mean, named.predict(named.task().test.x).mean)
    tensors = {name: torch.from_numpy(one) for name, one in given.items()}
    assert torch.equal(named.model()(**tensors), named.model()(named.task().test.x))
    assert 500 < named.predict(given).mean.mean() < 1500


def test_examples_that_a_run_keeps_are_whole(run, named):
    for own in (run, named):
        kept, task = pa.open_run(own.folder).task(), own.task()
        assert kept is not task
        assert kept.parts == task.parts
        assert torch.equal(kept.test.x, task.test.x)
        assert repr(kept) == repr(task)
        again = Networks.of(pa.open_run(own.folder), own.architecture).evaluate(kept.test)["selected"]
        assert again["log_likelihood"] == pytest.approx(own.result["metrics"]["test"]["log_likelihood"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (NUMBERS, r"x is one input, and this run takes 2 \(4 numbers and 5 tokens\); give \(x0, x1\)"),
        ((NUMBERS,), "x has the inputs 0, and this run takes"),
        ((NUMBERS, WORDS, NUMBERS), "x has the inputs 0, 1, 2, and this run takes"),
        ((NUMBERS, WORDS[:7]), r"x: its inputs have different numbers of examples \(0: 120, 1: 7\)"),
        ((WORDS, NUMBERS), r"x\[0\] is float64 of the shape \[120, 5\]; give numbers \[n, 4\]"),
        ((NUMBERS, WORDS.astype(np.float32)), r"x\[1\] is float32 of the shape \[120, 5\]; give tokens \[n, 5\]"),
        ((NUMBERS, WORDS + 5), r"x\[1\] has inputs up to 13, and this run knows the tokens 0 to 8"),
        ((NUMBERS, WORDS - 1), r"x\[1\]\[\d+, \d+\] is -1; whole numbers are tokens, which run from 0"),
        ((np.where(NUMBERS > 5, np.nan, NUMBERS), WORDS), r"x\[0\]\[\d+, \d+\] is nan; give finite"),
    ],
)
def test_other_inputs_are_refused(run, given, says):
    with pytest.raises(PolyarchError, match=says) as caught:
        run.predict(given)
    assert "\n" not in str(caught.value)


def test_other_names_are_refused(named):
    with pytest.raises(PolyarchError, match=r"x has the inputs image, weight, and this run takes \{size"):
        named.predict({"image": PIXELS, "weight": NUMBERS[:, 0]})
    with pytest.raises(PolyarchError, match=r"x\[image\] has numbers from 0 to 1"):
        named.predict({"image": PIXELS.astype(np.float32) / 255, "size": NUMBERS[:, 0]})


def test_rows_that_are_none_of_a_task_are_refused(run, named):
    rows = run.task().test.x.clone()
    rows[0, -1] += 0.5
    with pytest.raises(PolyarchError, match=r"x\[1\] has fractions, and this run takes tokens there"):
        run.predict(rows)
    with pytest.raises(PolyarchError, match=r"x\[image\] has fractions, and this run takes bytes there"):
        named.predict(named.task().test.x / 255)
    rows[0, -1] = torch.nan
    with pytest.raises(PolyarchError, match="not finite"):
        run.predict(rows)


def test_files_hold_one_input(run, tmp_path):
    np.savez(tmp_path / "new.npz", x=NUMBERS)
    says = r"is one input, and this run takes 2 \(4 numbers and 5 tokens\); ask it in Python: run.predict\(\(x0, x1\)\)"
    with pytest.raises(PolyarchError, match=says):
        run.predict(tmp_path / "new.npz")
    np.savez(tmp_path / "labelled.npz", x=np.zeros((30, 9), np.float32), y=np.arange(30) % 3)  # as long as a row
    with pytest.raises(PolyarchError, match="this run takes 2"):
        run.other_data(str(tmp_path / "labelled.npz"))
    with pytest.raises(PolyarchError):
        run.other_inputs("spirals")


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (lambda: ((NUMBERS, WORDS[:9]), LABELS), "x: its inputs have different numbers of examples"),
        (lambda: ((NUMBERS, WORDS), LABELS[:9]), "x has 120 examples but arrays: y has 9"),
        (lambda: ({"two words": NUMBERS}, LABELS), "an input called 'two words'"),
        (lambda: ({}, LABELS), "different numbers of examples"),
        (lambda: ((NUMBERS, np.array(3.0)), LABELS), "different numbers of examples"),
        (lambda: ((NUMBERS, WORDS), LABELS, NUMBERS, LABELS), "x_test does not have the inputs of x"),
        (lambda: (NUMBERS, LABELS, (NUMBERS, WORDS), LABELS), "x_test is several inputs and x is one"),
        (lambda: ((NUMBERS, WORDS), LABELS, (NUMBERS, NUMBERS), LABELS), "inputs of x_test have other shapes or types"),
        (lambda: ((NUMBERS, np.full((COUNT, 5), "a")), LABELS), r"x\[1\] holds values of type <U1"),
    ],
)
def test_data_that_cannot_be(load, says):
    with pytest.raises(PolyarchError, match=says) as caught:
        pa.data.load(load())
    assert "\n" not in str(caught.value)


def test_a_dataset_whose_items_differ():
    class Ragged(Pairs):
        def __getitem__(self, index):
            (first, second), y = super().__getitem__(index)
            return ((first, second[: 5 - (index == 3)]) if index != 4 else first), y

    with pytest.raises(PolyarchError, match="only one of the items 0 and 4 has several inputs"):
        pa.data.load(Ragged(NUMBERS, WORDS))
    with pytest.raises(PolyarchError, match="an input has not one shape in all items"):
        pa.data.load(torch.utils.data.Subset(Ragged(NUMBERS, WORDS), range(4)))


@pytest.mark.parametrize(
    "method",
    [
        pa.methods.Darts(epochs=1, batch_size=20),
        pa.methods.Gdas(epochs=1, batch_size=20),
        pa.methods.OneShot(epochs=1, batch_size=20),
        pa.methods.StochasticArchitectures(epochs=1, batch_size=20),
    ],
    ids=lambda method: method.name,
)
def test_methods_take_them(tmp_path, method):
    run = searched(tmp_path / "run", (NUMBERS, WORDS), LABELS, method=method)
    assert torch.isfinite(run.predict((NUMBERS, WORDS)).probs).all()
    if method.name == "darts":
        alone = pa.train_selected(run)
        assert torch.equal(run.model()(alone.task().test.x), alone.model()(alone.task().test.x))
        assert pa.fit_plain_models(run).left_out == {
            "plain models": "they take one input, and every example has several"
        }
        assert write_report(run, run.task()).stat().st_size > 10_000


def test_the_report_of_a_depth(named):
    assert write_report(named, named.task()).stat().st_size > 10_000


def test_spaces_of_one_input_refuse(tmp_path):
    task = pa.data.load(((NUMBERS, WORDS), LABELS), select=0.2)
    nested = pa.methods.VariationalDepth(epochs=1)
    with pytest.raises(PolyarchError, match=r"the space 'depth' take one input, and this data has 2 \(4 num"):
        pa.search(pa.spaces.ResidualDepth(), task, nested, out=tmp_path / "run")
    crop = pa.methods.Darts(epochs=1, augment={"crop": 2})
    with pytest.raises(PolyarchError, match="augmentation needs images"):
        pa.search(pa.ModuleSpace(Two), task, crop, out=tmp_path / "run")
    for factory, says in ((Pictured, "does not run on several inputs"), (lambda: Two().head, "has no open choice")):
        with pytest.raises(PolyarchError, match=says):
            pa.search(pa.ModuleSpace(factory), task, PARSEC, out=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_scores(run):
    architectures = run.space.decode(torch.tensor([[0], [1]]))

    def scored(score):
        chance = torch.Generator().manual_seed(0)
        return score(candidates_of(run, architectures, score.needs, chance), chance)

    assert torch.isfinite(scored(pa.scores.Snip())).all()
    assert torch.isfinite(scored(pa.scores.Sotl(steps=3, batch_size=20))).all()
    assert torch.isfinite(scored(pa.scores.ValidAccuracy())).all()
    for score in (pa.scores.JacobCov(), pa.scores.SynFlow()):
        with pytest.raises(PolyarchError, match="needs one input of numbers, and these are several"):
            scored(score)


def test_programs_take_inputs_as_networks_do(run, named, tmp_path):
    for own, given in ((run, (NUMBERS, WORDS)), (named, {"size": NUMBERS[:, :1], "image": PIXELS.astype(np.float32)})):
        own.save(tmp_path / "net.pt2")
        program = torch.export.load(tmp_path / "net.pt2").module()
        for count in (1, 5, COUNT):
            if isinstance(given, tuple):
                x = [torch.from_numpy(one[:count]) for one in given]
                assert torch.allclose(program(*x)["output"], own.model()(*x), atol=1e-5)
            else:
                by_name = {name: torch.from_numpy(one[:count]) for name, one in given.items()}
                assert torch.allclose(program(**by_name)["output"], own.model()(**by_name), rtol=1e-5)
