"""Data of one's own, as people have it: files that a command is given, of sets that scikit-learn has or generates.

`MAIN` are the ten sets by which the rule for defaults was made; `OTHERS` are of other kinds, on which it was then made
better; `AFTER` were made when the rule was done, and nothing was changed for them. What is generated is the same in
every run: a seed decides about splits and about training alone.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from sklearn import datasets
from torch import Tensor, nn

import polyarch as pa

Array = NDArray[Any]
WORDS, LENGTH = 40, 24
"""Different tokens of a sequence, and how many it has."""


@dataclass(frozen=True)
class OwnData:
    """A data set."""

    about: str
    write: Callable[[Path], Path]
    """Makes it in a folder, and says what `--data` is given."""
    space: str = ""
    """What `--space` is given; empty: nothing, so that it is the default."""


class Sequences(nn.Module):
    """A network of one's own for sequences of tokens: an embedding, blocks of convolutions, and how many of these."""

    def __init__(self, width: int = 32, blocks: int = 4) -> None:
        """For `WORDS` tokens and two classes."""
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.depth = pa.Depth("depth", [Convolution(width) for _ in range(blocks)], head=Pooled(width, 2))

    def forward(self, tokens: Tensor) -> Tensor:
        """[n, LENGTH] -> [n, 2]."""
        out: Tensor = self.depth(self.embedding(tokens).transpose(1, 2))
        return out


class Convolution(nn.Module):
    """x + ReLU(norm(conv(x))), over neighbours in a sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """[n, width, LENGTH] -> the same."""
        out: Tensor = x + self.layers(x)
        return out


class Pooled(nn.Module):
    """A linear answer from the mean over a sequence."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[n, width, LENGTH] -> [n, outputs]."""
        out: Tensor = self.linear(x.mean(-1))
        return out


# ---------------------------------------------------------------------------------------------------------------------
# Ways of writing them.


def table(folder: Path, name: str, columns: dict[str, Iterable[Any]]) -> Path:
    """A .csv of columns by name."""
    file = folder / f"{name}.csv"
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return file


def bundled(name: str, load: Callable[..., Any]) -> Callable[[Path], Path]:
    """Writes a table that comes with scikit-learn, its numbers as they are."""

    def write(folder: Path) -> Path:
        data = load()
        names = [str(own) for own in data.feature_names]
        classes = getattr(data, "target_names", None)
        y = data.target if classes is None else np.asarray(classes)[data.target]
        return table(folder, name, dict(zip(names, data.data.T.tolist(), strict=True)) | {"label": y.tolist()})

    return write


def generated(name: str, make: Callable[[], tuple[Array, Array]]) -> Callable[[Path], Path]:
    """Writes a table that is generated."""

    def write(folder: Path) -> Path:
        x, y = make()
        return table(folder, name, {f"x{k}": column.tolist() for k, column in enumerate(x.T)} | {"label": y.tolist()})

    return write


# ---------------------------------------------------------------------------------------------------------------------
# The sets.


def digits(folder: Path) -> Path:
    """The name that polyarch knows them by."""
    return Path("digits")


def covertype(folder: Path) -> Path:
    """20,000 rows, seven unequal classes, numbers of different scale, two columns of words that follow from numbers."""
    shares = [0.36, 0.44, 0.07, 0.02, 0.03, 0.04, 0.04]
    x, y = datasets.make_classification(
        20_000, 12, n_informative=9, n_redundant=2, n_classes=7, n_clusters_per_class=3, weights=shares,
        flip_y=0.03, class_sep=1.2, random_state=0,
    )  # fmt: skip
    soil = np.digitize(x[:, 0] + x[:, 1], np.linspace(-4, 4, 14))
    area = np.digitize(x[:, 2], [-1.0, 0.5, 2.0])
    numbers = {f"x{k}": np.round(x[:, k] * 10.0 ** (k % 4) + 100 * k, 3).tolist() for k in range(12)}
    words = {"soil": [f"type {k}" for k in soil], "area": [f"area {'abcd'[k]}" for k in area]}
    return table(folder, "covertype", {**numbers, **words, "label": [f"cover {k}" for k in y]})


def friedman() -> tuple[Array, Array]:
    """Friedman's first function of ten columns, of which five matter, in thousands."""
    x, y = datasets.make_friedman1(2000, 10, noise=1.0, random_state=0)
    return x, np.round(1000 * y + 50_000, 1)


def gaps(folder: Path) -> Path:
    """1,500 customers: skewed amounts, words, a gap in every tenth cell, and who leaves."""
    random, n = np.random.default_rng(0), 1500
    age = random.normal(45, 14, n).clip(18, 90).round()
    income = random.lognormal(10.3, 0.7, n).round()
    debt = (income * random.gamma(0.8, 0.5, n)).round()
    visits = random.poisson(3, n)
    city = random.choice(["Lyon", "Oslo", "Porto", "Riga", "Turin"], n, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    plan = random.choice(["basic", "plus", "pro"], n, p=[0.5, 0.3, 0.2])
    score = 0.9 * np.log(debt / income + 0.1) - 0.5 * visits + 0.03 * (45 - age) + 1.1 * (plan == "basic")
    score += 0.8 * np.isin(city, ["Oslo", "Riga"]) * (age < 40) - 0.7 * (plan == "pro") * (visits > 2) + 1.2
    label = np.where(random.random(n) < 1 / (1 + np.exp(-1.5 * score)), "leaves", "stays")
    columns = {"age": age, "income": income, "debt": debt, "visits": visits, "city": city, "plan": plan}
    empty = random.random((len(columns), n)) < 0.1
    cells = {
        name: ["" if gap else cell for cell, gap in zip(values.tolist(), own, strict=True)]
        for (name, values), own in zip(columns.items(), empty, strict=True)
    }
    return table(folder, "gaps", {**cells, "label": label.tolist()})


def images(folder: Path) -> Path:
    """600 pictures of 40 to 120 pixels a side: light circles, squares and triangles, anywhere on dark, with noise."""
    random, root = np.random.default_rng(0), folder / "shapes"
    for k in range(600):
        kind = ("circle", "square", "triangle")[k % 3]
        width, height = (int(side) for side in random.integers(40, 121, 2))
        back, front = (tuple(int(c) for c in random.integers(low, low + 110, 3)) for low in (0, 140))
        image = Image.new("RGB", (width, height), back)
        size = int(random.uniform(0.35, 0.7) * min(width, height))
        left, top = int(random.integers(0, width - size)), int(random.integers(0, height - size))
        box, draw = (left, top, left + size, top + size), ImageDraw.Draw(image)
        if kind == "circle":
            draw.ellipse(box, fill=front)
        elif kind == "square":
            draw.rectangle(box, fill=front)
        else:
            draw.polygon([(left, top + size), (left + size, top + size), (left + size // 2, top)], fill=front)
        noisy = np.asarray(image, np.float64) + random.normal(0, 20, (height, width, 3))
        file = root / kind / f"{k:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file)
    return root


def tokens(folder: Path) -> Path:
    """1,500 sequences: which class follows from how often some tokens come, and from which of two stands first."""
    random, n = np.random.default_rng(0), 1500
    x = random.integers(2, WORDS, (n, LENGTH))
    places = np.sort(np.argsort(random.random((n, LENGTH)), 1)[:, :2], 1)
    flip = random.random(n) < 0.5
    x[np.arange(n), places[:, 0]], x[np.arange(n), places[:, 1]] = flip, ~flip
    near = (places[:, 1] - places[:, 0]) < 12
    score = ((x > 30).sum(1) - (x < 11).sum(1)) / 1.5 + np.where(flip, 1.5, -1.5) * near
    y = (random.random(n) < 1 / (1 + np.exp(-1.5 * score))).astype(np.int64)
    np.savez(folder / "tokens.npz", x=x, y=y)
    return folder / "tokens.npz"


MAIN = {
    "iris": OwnData("150 flowers, 4 numbers, 3 classes", bundled("iris", datasets.load_iris)),
    "wine": OwnData("178 wines, 13 numbers, 3 classes", bundled("wine", datasets.load_wine)),
    "breast-cancer": OwnData("569 patients, 30 numbers, 2 classes", bundled("cancer", datasets.load_breast_cancer)),
    "digits": OwnData("1,797 images of 8x8, 10 classes", digits),
    "diabetes": OwnData("442 patients, 10 numbers; one from 25 to 346", bundled("diabetes", datasets.load_diabetes)),
    "covertype-like": OwnData("20,000 rows, 12 numbers, 2 columns of words, 7 classes", covertype),
    "friedman": OwnData("2,000 rows, 10 numbers; a number around 64,000", generated("friedman", friedman)),
    "gaps": OwnData("1,500 rows, 4 numbers, 2 columns of words, gaps, 2 classes", gaps),
    "images": OwnData("600 images of 40 to 120 pixels a side, 3 classes", images),
    "tokens": OwnData("1,500 sequences of 24 tokens, 2 classes", tokens, "reproduce.own_data_sets:Sequences"),
}  # fmt: skip


def imbalanced() -> tuple[Array, Array]:
    """One example in twenty is of the second class."""
    return datasets.make_classification(3000, 15, n_informative=6, weights=[0.95], flip_y=0.01, random_state=1)  # type: ignore[no-any-return]


def wide() -> tuple[Array, Array]:
    """Many columns, few rows."""
    return datasets.make_classification(150, 400, n_informative=10, n_redundant=20, class_sep=1.5, random_state=2)  # type: ignore[no-any-return]


def linear() -> tuple[Array, Array]:
    """A number that is linear in its columns, but for noise."""
    return datasets.make_regression(800, 20, n_informative=10, noise=30.0, random_state=3)  # type: ignore[no-any-return]


def counts() -> tuple[Array, Array]:
    """How often each of 100 words comes in a text; most come never."""
    random = np.random.default_rng(4)
    topics = random.dirichlet(np.full(100, 0.1), 4)
    y = random.integers(0, 4, 1200)
    mixed = 0.35 * topics[y] + 0.65 * topics[random.integers(0, 4, 1200)]
    return np.stack([random.multinomial(20, p) for p in mixed]), y


def heavy_tails() -> tuple[Array, Array]:
    """Columns whose largest value is thousands of times the median, and classes by their logarithms."""
    random = np.random.default_rng(5)
    logs = random.normal(0, 1, (1500, 8))
    score = logs[:, 0] * logs[:, 1] + logs[:, 2] - 0.5 * np.abs(logs[:, 3]) + 0.3
    y = (random.random(1500) < 1 / (1 + np.exp(-2 * score))).astype(np.int64)
    return np.exp(2.0 * logs), y


def moons() -> tuple[Array, Array]:
    """Two half circles that reach into each other."""
    return datasets.make_moons(500, noise=0.25, random_state=6)  # type: ignore[no-any-return]


OTHERS = {
    "imbalanced": OwnData("3,000 rows, 15 numbers, 2 classes, one of 5 %", generated("imbalanced", imbalanced)),
    "wide": OwnData("150 rows, 400 numbers, 2 classes", generated("wide", wide)),
    "linear": OwnData("800 rows, 20 numbers; a number linear in them", generated("linear", linear)),
    "counts": OwnData("1,200 rows, 100 counts, 4 classes", generated("counts", counts)),
    "heavy-tails": OwnData("1,500 rows, 8 numbers of heavy tails, 2 classes", generated("heavy-tails", heavy_tails)),
    "moons": OwnData("500 rows, 2 numbers, 2 classes", generated("moons", moons)),
}


def hastie() -> tuple[Array, Array]:
    """Whether the squares of ten numbers add up to more than usual."""
    return datasets.make_hastie_10_2(2000, random_state=7)  # type: ignore[no-any-return]


def shells() -> tuple[Array, Array]:
    """Three numbers, and classes by how far they are from the middle."""
    return datasets.make_gaussian_quantiles(n_samples=800, n_features=3, n_classes=3, random_state=8)  # type: ignore[no-any-return]


def clusters() -> tuple[Array, Array]:
    """Five classes of two clusters each, and labels of which one in twenty is wrong."""
    return datasets.make_classification(  # type: ignore[no-any-return]
        1200, 12, n_informative=8, n_classes=5, n_clusters_per_class=2, flip_y=0.05, random_state=9
    )


def demand(folder: Path) -> Path:
    """How many bicycles are lent in an hour: by the hour, the weather, the season and the day; a number, with gaps."""
    random, n = np.random.default_rng(10), 1400
    hour, warm = random.integers(0, 24, n), random.normal(14, 8, n)
    weather = random.choice(["clear", "clouds", "rain", "snow"], n, p=[0.5, 0.3, 0.17, 0.03])
    day = random.choice(["working", "free"], n, p=[0.7, 0.3])
    rush = np.exp(-((hour - 8) ** 2) / 4) + np.exp(-((hour - 18) ** 2) / 6)
    noon = np.exp(-((hour - 14) ** 2) / 20)
    wet = np.select([weather == "rain", weather == "snow"], [0.45, 0.15], 1.0)
    mean = (40 + 300 * np.where(day == "working", rush, noon)) * wet * np.clip(0.3 + warm / 22, 0.1, 1.6)
    lent = (mean * random.gamma(16, 1 / 16, n)).round()
    degrees = [f"{value:.1f}" if known else "" for value, known in zip(warm, random.random(n) > 0.05, strict=True)]
    columns = {"hour": hour.tolist(), "degrees": degrees, "weather": weather.tolist(), "day": day.tolist()}
    return table(folder, "demand", {**columns, "label": lent.tolist()})


AFTER = {
    "hastie": OwnData("2,000 rows, 10 numbers, 2 classes", generated("hastie", hastie)),
    "shells": OwnData("800 rows, 3 numbers, 3 classes", generated("shells", shells)),
    "clusters": OwnData("1,200 rows, 12 numbers, 5 classes", generated("clusters", clusters)),
    "demand": OwnData("1,400 rows, 2 numbers, 2 columns of words, gaps; a number from 0 to some 900", demand),
}  # fmt: skip


SETS = MAIN | OTHERS | AFTER
