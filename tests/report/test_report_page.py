"""What the page says, for every kind of run, and that it is one file that says the same twice."""

import html
import re
import shlex
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from nested_space import WIDTHS, Widths
from rewriting import rewritten
from sklearn.metrics import confusion_matrix, roc_auc_score

import polyarch as pa
from polyarch.data.task import Split
from polyarch.errors import PolyarchError
from polyarch.files import write_json
from polyarch.report import commands, formatting, write_report, write_summary_report
from polyarch.runs.run import Run
from polyarch.testing.toy import EnumeratedElbo, Lines, toy_task

DEPTH_SEARCH = ["table", "belief", "belief_over_time", "curves", "classes", "calibration", "uncertainty"]


def sections(text):
    return re.findall(r'<section id="(\w+)">', text)


def read(path):
    text = path.read_text(encoding="utf-8")
    assert path.name == "report.html"
    assert len(text) < 2_000_000
    # One file: addresses are anchors or data, and nothing else is fetched.
    assert set(re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text)) == set()
    assert not re.search(r"https?://|@import|<script|<link|<iframe", text)
    assert not re.search(r"url\((?!#)", text)
    # Every entry of the contents leads somewhere.
    assert re.findall(r'<a href="#(\w+)">', text) == sections(text)
    text = re.sub(r' data-label="[^"]*"', "", re.sub(r'<div class="narrow">.*?</div>', "", text, flags=re.S))
    # Numbers that are none would be a slip of ours.
    assert not re.search(r"\b(nan|None|NaN|inf)\b", re.sub(r"<(svg|pre).*?</\1>", "", text, flags=re.S))
    return text


def test_images(digits, page):
    text = read(page("digits"))
    cut = ["cost"] if digits.run.architecture.choices[0] < 3 else []
    early = ["early_exit"] if digits.run.architecture.choices[0] else []
    assert sections(text) == [*DEPTH_SEARCH, *early, "gallery", "pareto", *cut, "made"]
    assert text.count("<img ") == 12
    for name in ("Selected network", "Fixed depth 0", "Fixed depth 2", "log-likelihood", "Brier"):
        assert name in text
    for rule in ("argmax", "95%", "expectation"):
        assert f"<td>{rule}</td>" in text
    accuracy = 100 * digits.run.result["metrics"]["test"]["accuracy"]
    assert f"{accuracy:.1f}\u202f%" in text
    assert "test log-likelihood, nats per example" in text
    assert "KL(belief || prior), nats</text>" in text


def test_classes_are_those_of_the_run(digits, page):
    [section] = re.findall(r'<section id="classes">(.*?)</section>', read(page("digits")), flags=re.S)
    network, mixture = (digits.run.result["per_class"][name] for name in ("test", "test_ensemble"))
    for own, mixed in zip(network, mixture, strict=True):
        shares = [own["precision"], own["recall"], own["f1"], mixed["f1"]]
        cells = ["–" if share is None else formatting.percent(share) for share in shares]
        row = "".join(f"<td>{text}</td>" for text in (own["class"], own["examples"], *cells))
        assert f"<tr>{row}</tr>" in section
    guess = digits.run.model()(digits.task.test.x).argmax(-1)
    counts = confusion_matrix(digits.task.test.y, guess)
    np.fill_diagonal(counts, 0)
    true, taken = np.unravel_index(counts.argmax(), counts.shape)
    examples = int((digits.task.test.y == true).sum())
    assert f"Confused most: {true} taken for {taken} ({counts.max()} of {examples});" in section


def test_of_many_classes_the_worst_are_shown(tmp_path):
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(24), 20)
    x = np.stack([np.sin(y), np.cos(y), y / 12], 1) + 0.2 * random.normal(size=(480, 3))
    task = pa.data.load((x.astype(np.float32), y), select=0.1, test=0.3)
    method = pa.methods.FixedDepth(depth=1, epochs=8, batch_size=32)
    run = pa.search(pa.spaces.ResidualDepth(max_depth=2, width=8), task, method, out=tmp_path / "run")
    [section] = re.findall(r'<section id="classes">(.*?)</section>', read(write_report(run, task)), flags=re.S)
    assert "Of 24 classes, the 12 of lowest F1." in section
    assert section.count("<tr><td>") == 12
    least = sorted(row["f1"] for row in run.result["per_class"]["test"] if row["f1"] is not None)[:12]
    assert re.findall(r"<td>([^<]*)</td></tr>", section) == [formatting.percent(share) for share in least]
    assert len(set(least)) > 6


def test_settings_of_parts_have_dotted_names(page):
    text = read(page("digits"))
    for name, value in (("weights.lr", "0.1"), ("weights.schedule.kind", "constant"), ("stopping.split", "auto")):
        assert f'<tr><th scope="row">{name}</th><td>{value}</td></tr>' in text


def test_only_where_the_best_state_is_kept_was_training_still_improving(page):
    """A search that keeps the last state always ends at its last epoch."""
    said = "training was still improving"
    assert said in read(page("spirals"))
    assert said not in read(page("cell_search"))


def test_risk_and_disagreement_are_those_of_the_run(digits, page):
    text = read(page("digits"))
    [section] = re.findall(r'<section id="uncertainty">(.*?)</section>', text, flags=re.S)
    ensemble, test = digits.run.ensemble(), digits.task.test
    with torch.no_grad():
        members = ensemble.members(test.x).double().softmax(-1)
        network = digits.run.model()(test.x).double().softmax(-1)
    mixture = torch.einsum("m,mnc->nc", ensemble.weights.double(), members)
    said = "pruned mixture" if digits.run.architecture.choices[0] < 3 else "mixture"
    assert f"is {area(network, test.y)} for the selected network and {area(mixture, test.y)} for the {said}" in section
    expected = torch.einsum("m,mn->n", ensemble.weights.double(), torch.special.entr(members).sum(-1))
    information, wrong = torch.special.entr(mixture).sum(-1) - expected, mixture.argmax(-1) != test.y
    told = f"AUROC {roc_auc_score(wrong, information):.3f}"
    assert f">right ({int((~wrong).sum())})</text>" in section
    assert f">wrong ({int(wrong.sum())}), {told}</text>" in section


def area(probs, target):
    """Mean over k of the errors among the k surest, as the page writes it; there are no ties here."""
    confidence, predicted = probs.max(-1)
    wrong = (predicted != target)[confidence.argsort(descending=True)].double()
    assert len(confidence.unique()) == len(confidence)
    return f"{(wrong.cumsum(0) / torch.arange(1, len(wrong) + 1)).mean():.4f}"


def test_one_member_has_nobody_to_disagree_with(digits, page, tmp_path):
    """Cut at depth 0, the mixture is one network, though belief was open."""
    assert "uncertainty" in sections(read(page("digits")))
    folder = shutil.copytree(digits.folder, tmp_path / "run")
    write_json(folder / "architecture.json", {"architecture": "depth=0", "stage": 0})
    cut = Run(folder, digits.task)
    assert len(cut.ensemble().weights) == 1
    assert "uncertainty" not in sections(read(write_report(cut, digits.task)))


def test_without_an_error_there_is_no_risk_to_draw(digits):
    run, test = digits.run, digits.task.test
    right = (run.model()(test.x).argmax(-1) == test.y) & (run.ensemble().output(test.x).argmax(-1) == test.y)
    easy = replace(digits.task, splits={**digits.task.splits, "test": Split(test.x[right], test.y[right])})
    [section] = re.findall(r'<section id="uncertainty">(.*?)</section>', read(write_report(run, easy)), flags=re.S)
    assert "Answering only where it is sure" not in section
    assert f">right ({int(right.sum())})</text>" in section
    assert "AUROC" not in section
    assert "wrong (" not in section


def test_odd_names_are_escaped(digits, page):
    text = read(page("digits"))
    assert digits.folder.name not in text
    assert "<b>&amp;" not in text
    assert "odd &lt;b&gt;&amp;amp;" in text
    [command] = re.findall(r"<pre>(polyarch search --space.*?)</pre>", text, flags=re.S)
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&#34;", '"'), ("&#39;", "'"), ("&amp;", "&")):
        command = command.replace(entity, character)
    words = shlex.split(command.replace("\\\n", ""))
    assert words[words.index("--out") + 1] == f"{digits.folder}-again"
    assert {"space.max_depth=3", "space.width=8", "method.epochs=2", "search.selection=expectation"} <= set(words)


def test_what_a_search_was_given_is_given_again(tmp_path, cell_search):
    run = cell_search.runs[0]
    assert "--table" not in commands.search_command(run, tmp_path / "out")
    run = rewritten(run, tmp_path / "run", list)
    replace(run.config, table="/tables/my table.npz", column="acc[3]", belief_from="/runs/small").write(run.folder)
    command = shlex.split(commands.search_command(Run(run.folder), tmp_path / "out").replace("\\\n", ""))
    for option, value in (
        ("--table", "/tables/my table.npz"),
        ("--column", "acc[3]"),
        ("--belief-from", "/runs/small"),
    ):
        assert command[command.index(option) + 1] == value
    call = commands.search_call(Run(run.folder), tmp_path / "out")
    assert "start=pa.Start(prior='uniform', belief_from='/runs/small')" in call
    assert "callbacks=[pa.TableTruth('/tables/my table.npz', 'acc[3]')]" in call


def test_the_same_run_gives_the_same_page(spirals, page):
    assert write_report(Run(spirals.folder), spirals.task).read_bytes() == page("spirals").read_bytes()


def test_a_plane(spirals, page):
    text = read(page("spirals"))
    assert "maps" in sections(text)
    assert "gallery" not in sections(text)
    shown = [int(d) for d in re.findall(r">depth (\d+)(?:, selected)?</text>", text)]
    assert len(shown) == 10
    assert {0, 1, 2, spirals.run.architecture.choices[0], 14} <= set(shown)
    # No baselines: the depths of the search itself are shown, on the data that it was fitted to.
    assert ">training log-likelihood by depth, nats per example</text>" in text


def test_a_fixed_depth_leaves_out_what_says_nothing(page):
    text = read(page("spirals_fixed"))
    assert sections(text) == ["table", "curves", "classes", "calibration", "maps", "made"]
    assert "A network of fixed depth 2." in text
    assert "mixture" not in text.lower()


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_one_architecture_speaks_for_itself_or_by_its_draws_of_dropout(images, tmp_path, dropout):
    space = pa.spaces.Wiring(wirings="residual", stages=1, nodes=2, channels=4, dropout=dropout)
    method = pa.methods.StochasticArchitectures(epochs=1, batch_size=8)
    run = pa.search(space, images, method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    text = read(write_report(run, images))
    assert "One network of the space wiring, trained alone." in text
    assert "This network" in text
    assert ("uncertainty" in sections(text)) == bool(dropout)
    assert ("the mixture over draws of dropout" in text) == bool(dropout)
    assert ("mixture" in text.lower()) == bool(dropout)
    assert ("run.ensemble()" in text) == bool(dropout)
    beside = read(write_report(run, images, baselines=[run]))
    assert "stochastic-architectures, run" in beside, "a baseline has its row, whether it is a mixture or not"


def test_repeats(repeats, page):
    text = read(page("repeats"))
    assert (repeats.folder / "report.html").exists()
    assert sections(text)[:8] == ["table", "seeds", *DEPTH_SEARCH[1:]]
    assert "Over 3 seeds" in text
    assert "±" in text
    for seed in range(3):
        assert f"<tr><td>{seed}</td>" in text
    assert "--repeats 3" in text


def test_repeats_of_a_fixed_depth_and_as_one_baseline(tmp_path, spirals):
    space, method = pa.spaces.ResidualDepth(max_depth=2, width=8), pa.methods.FixedDepth(epochs=2)
    runs = pa.search(space, spirals.task, method, out=tmp_path / "run", repeats=2, compute=pa.Compute("cpu"))
    text = read(write_summary_report(tmp_path, runs, spirals.task))
    assert sections(text) == ["table", "seeds", "curves", "classes", "calibration", "maps", "made"]
    text = read(write_report(spirals.run, spirals.task, baselines=runs))
    assert text.count('<tr class="baseline') == 1
    assert "Fixed depth 2<small>2 seeds</small>" in text


def test_no_data_to_evaluate_on(page):
    text = read(page("unsplit"))
    assert "table" not in sections(text)
    assert not {"classes", "calibration", "uncertainty"} & set(sections(text))
    assert "no validation or test examples" in text
    assert "training accuracy" in text


def test_numbers_to_predict(page, regression):
    text = read(page("regression"))
    assert "RMSE" in text
    assert not {"classes", "calibration", "uncertainty"} & set(sections(text))
    assert "intervals" in sections(text)
    found = regression.run.result["metrics"]["test_ensemble"]
    assert f"{formatting.percent(found['coverage_90'])}, {formatting.number(found['width_90'])}" in text
    assert "accuracy" not in text
    assert "maps" in sections(text)
    # The data was in memory: no command can find it, so the page says it in Python.
    assert "polyarch search" not in text
    assert "pa.search(" in text
    assert "pa.spaces.ResidualDepth(max_depth=3, width=8)" in text


def test_a_nested_space_of_ones_own_has_the_report_of_depth_in_its_own_words(tmp_path):
    space, task = Widths(), pa.data.load("spirals", points=100, test_points=60)
    search = {
        "method": pa.methods.VariationalDepth(epochs=2, update="sgd"),
        "select": "expectation",
        "compute": pa.Compute("cpu"),
    }
    run = pa.search(space, task, out=tmp_path / "run", **search)
    fixed = [
        pa.search(
            space,
            task,
            pa.methods.Standalone(architecture=f"width={k}", epochs=1),
            out=tmp_path / f"{k}",
            compute=search["compute"],
        )
        for k in (16, 2)
    ]
    [option] = run.architecture.choices
    width = WIDTHS[option]
    assert 0 < option < 3
    text = read(write_report(run, task, baselines=fixed))
    assert sections(text) == [*DEPTH_SEARCH, "maps", "pareto", "cost", "made"]
    for words in (
        f"Width {width} of 16",
        f"Pruning width 16 to {width} drops",
        "the pruned mixture over widths",
        "pruned, of widths up to the selected one",
        "Belief over width",
        "Mixture, all widths",
        f"widths 2 to {width}, Eq. 3",
        "belief over width after an epoch",
        ">belief, by width</text>",
        ">fixed widths</text>",
        f">width {width}, selected</text>",
        f">selected {width} (",
    ):
        assert words in text, words
    assert re.findall(r"Fixed width \d+", text) == ["Fixed width 2", "Fixed width 16"]
    axis = [text.index(f">{option}</text>") for option in WIDTHS]
    assert axis == sorted(axis), "options stand at the axis by their names"
    own_words = text.replace("variational-depth", "").replace("Variational Depth Search", "")
    assert "depth" not in own_words.replace(str(tmp_path), "").lower()
    runs = pa.search(space, task, out=tmp_path / "two", repeats=2, **search)
    both = read(write_summary_report(tmp_path / "two", runs, task))
    assert re.search(r"Over 2 seeds, width \d+\.\d\u202f±\u202f\d+\.\d of 16", both)


def test_a_space_that_is_not_depth(tmp_path):
    task = toy_task(tmp_path / "data")
    run = pa.search(Lines(), task, EnumeratedElbo(epochs=3), out=tmp_path / "run", compute=pa.Compute("cpu"))
    text = read(write_report(run, task))
    assert sections(text) == ["architecture", "belief", "belief_over_time", "search", "curves", "made"]
    assert "The search selects slope=" in text
    assert "depth" not in text.replace(str(tmp_path), "").lower()
    for option in ("slope", "shift", "-1.0", "0.5"):
        assert f">{option}</text>" in text
    runs = pa.search(
        Lines(), task, EnumeratedElbo(epochs=3), out=tmp_path / "two", repeats=2, compute=pa.Compute("cpu")
    )
    assert sections(read(write_summary_report(tmp_path / "two", runs, task)))[0] == "seeds"


def test_wrong_runs_are_refused(repeats, digits, spirals_fixed, tmp_path):
    with pytest.raises(PolyarchError, match="fingerprint"):
        write_report(digits.run, repeats.task)
    with pytest.raises(PolyarchError, match=r"the baseline .* was trained on other data"):
        write_report(digits.run, digits.task, baselines=spirals_fixed.runs)
    with pytest.raises(PolyarchError, match="3 repeats"):
        write_report(Run(repeats.folder), repeats.task)
    with pytest.raises(PolyarchError, match="not a repeat"):
        write_summary_report(tmp_path, [*repeats.runs, *spirals_fixed.runs], repeats.task)
    with pytest.raises(PolyarchError, match="one run at least"):
        write_summary_report(tmp_path, [], repeats.task)


def test_what_is_not_learnt_has_no_section(page):
    for name in ("wiring", "wirings"):
        text = read(page(name))
        assert not {"belief", "belief_over_time"} & set(sections(text))
        assert "belief" not in re.sub(r"<pre>.*?</pre>", "", text, flags=re.S).replace("belief: not learnt", "").lower()


def test_seeds_that_select_the_same_share_a_picture(wirings, page):
    text = read(page("wirings"))
    texts = {str(run.architecture): run.seed for run in wirings.runs}
    titles = re.findall(r"<h3>(stage \d+), selected, seeds? ([\d–, ]+)</h3>", text)
    assert len(titles) == 2 * len(texts)
    for architecture in texts:
        own = [run.seed for run in wirings.runs if str(run.architecture) == architecture]
        assert ("stage 0", formatting.ranges(own)) in titles
        assert f"<b>{formatting.seeds(own)}</b>{html.escape(architecture)}" in text


def test_entropy_stands_beside_its_maximum(page):
    text = read(page("digits"))
    found = re.findall(r"entropy ([\d.]+) of ([\d.]+)", text)
    assert len(found) == 12
    assert {most for _, most in found} == {f"{np.log(10):.2f}"}
    assert all(0 < float(own) <= float(most) for own, most in found)


def test_the_top_says_what_was_found_whether_it_was_worth_it_and_how_sure_that_is(digits, page):
    text = read(page("digits"))
    top = text[: text.index("<nav")]
    assert (
        top.index("headline")
        < top.index("<dt>Found</dt>")
        < top.index("<dt>How sure?</dt>")
        < top.index('class="tiles')
    )
    accuracy, n = digits.run.result["metrics"]["test"]["accuracy"], len(digits.task.test)
    error = formatting.percent((accuracy * (1 - accuracy) / n) ** 0.5)
    assert f"With {n} test examples, an accuracy is known to ±\u202f{error} (one standard error)" in top
