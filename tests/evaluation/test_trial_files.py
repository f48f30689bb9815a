"""Files of results that are not what was written: named and scored again, never believed."""

import json
import shutil

import pytest
from evaluation import benchmark_folder
from fuzz import budget, flipped_bits

from tabicl_linear import evaluation_file
from tabicl_linear.errors import ConfigError, DamagedFile, DataError
from tabicl_linear.evaluation import evaluation, trials
from tabicl_linear.evaluation.benchmarks import folder_benchmark
from tabicl_linear.evaluation.candidates import candidates
from tabicl_linear.files import write_sealed

MODEL = "logistic_regression"
TABLE = {"name": "t", "openml_id": 1, "checksum": "", "rows": 9, "columns": 2, "classes": 2}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """An evaluation of one table, as the verb makes it."""
    folder = benchmark_folder.write(tmp_path_factory.mktemp("made") / "tables", rows=100)
    benchmark = folder_benchmark(folder, "other")
    return evaluation.Evaluation(benchmark, candidates([], [MODEL], "default"), threads=1)


@pytest.fixture(scope="module")
def once(asked, tmp_path_factory):
    """Its folder, and what `evaluation.json` says."""
    folder = tmp_path_factory.mktemp("scored") / "out"
    planned, content = evaluation.plan(asked, folder, print)
    evaluation.run(planned, content, folder, lambda line: None)
    return folder, content


@pytest.fixture
def scored(once, tmp_path):
    """A copy of both."""
    shutil.copytree(once[0], tmp_path / "out")
    return tmp_path / "out", once[1]


def trial(folder, fold=1):
    return folder / "trials" / f"{MODEL}--else--{fold}.json"


def again(asked, folder):
    """Repeat the command; the lines that it says."""
    lines = []
    asked, content = evaluation.plan(asked, folder, print)
    evaluation.run(asked, content, folder, lines.append)
    return lines


def sealed(path, **changes):
    """Change a trial and seal it anew, as somebody who knows how might."""
    content = json.loads(path.read_text())
    del content["digest"]
    values = changes.pop("values", {})
    write_sealed(path, content | changes | {"values": content["values"] | values})


def test_a_trial_comes_back(scored):
    folder, content = scored
    result = trials.read(trial(folder), content)
    assert (result.model, result.dataset, result.fold) == (MODEL, "else", 1)
    assert trials.read(trial(folder, 9), content) is None


def test_an_error_of_several_lines_is_one(asked):
    assert trials.outcome(asked.tasks()[0], error="no\n  room\n").error == "no room"


def test_names_with_slashes_name_no_folder(tmp_path):
    path = tmp_path / trials.file_name("new/model 1", "t/1", 0)
    assert path.parent == tmp_path
    assert path.name != trials.file_name("new", "model 1/t/1", 0)


def test_no_two_trials_share_a_file():
    names = ["a", "b", "a-b", "a--b", "a---b", "-a", "a-", "--", "-", "%2D", "a%2D-b", "b--a", "b-"]
    files = {trials.file_name(model, table, 0) for model in names for table in names}
    assert len(files) == len(names) ** 2
    assert trials.file_name("a-b", "credit-g", 1) == "a-b--credit-g--1.json"


@pytest.mark.parametrize("old", ['"roc_auc": 0.', '"fold": 1', f'"model": "{MODEL}', '"digest": "'])
def test_a_changed_character_is_noticed_and_scored_again(asked, scored, old):
    folder, content = scored
    path, before = trial(folder), (folder / "results.csv").read_text()
    result = trials.read(path, content)
    text = path.read_text()
    path.write_text(text.replace(old, f"{old}3" if old[-1] != "1" else old[:-1] + "2"))
    assert path.read_text() != text
    lines = again(asked, folder)
    assert lines[0].startswith(f"{path} is damaged (")
    assert lines[0].endswith(") and is scored again")
    assert lines[1] == "4 of 5 trials were done before"
    scores = trials.read(path, content).values
    assert all(scores[name] == result.values[name] for name in ("roc_auc", "log_loss"))
    rows = [(folder / "results.csv").read_text(), before]
    assert [len(text.splitlines()) for text in rows] == [41, 41]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"values": {"roc_auc": 7.5}}, "its roc_auc is 7.5 and should be a number from 0 to 1"),
        ({"values": {"log_loss": -1}}, "its log_loss is -1 and should be a number 0 or more"),
        ({"values": {"accuracy": "high"}}, "its accuracy is 'high'"),
        ({"values": {"ece": float("nan")}}, "its ece is nan"),
        ({"values": {"fit_seconds": True}}, "its fit_seconds is True"),
        ({"values": {"more": 1.0}}, "it has the values"),
        ({"fold": "one"}, "its fold is 'one'"),
        ({"fold": True}, "its fold is True"),
        ({"fold": 5}, "its fold is another: 5"),
        ({"fold": 2}, "it is another trial under this name"),
        ({"model": "tiny"}, "its model is another: 'tiny'"),
        ({"identity": "sklearn 0"}, "its model is another"),
        ({"dataset": "two"}, "its dataset is another: 'two'"),
        ({"benchmark": "big"}, "its benchmark is another: 'big'"),
        ({"openml_id": 5}, "its openml_id is another: 5"),
        ({"openml_id": "5"}, "its openml_id is '5'"),
        ({"error": "gone"}, "it has the values roc_auc"),
        ({"unread": 1}, "its unread is 1"),
        ({"colour": "red"}, "it has the keys"),
    ],
)
def test_what_no_trial_can_be_is_refused_even_with_a_digest(scored, changes, words):
    folder, content = scored
    sealed(trial(folder), **changes)
    with pytest.raises(DamagedFile) as error:
        trials.read(trial(folder), content)
    assert words in str(error.value)


def test_damaged_trials_of_other_commands_are_named_and_left_out(asked, scored):
    folder, _ = scored
    other = trial(folder).with_name("other--else--0.json")
    other.write_text(trial(folder).read_text())
    lines = again(asked, folder)
    assert f"{other} is damaged (it is another trial under this name)" in lines[-1]
    assert len((folder / "results.csv").read_text().splitlines()) == 41


def test_no_flipped_bit_of_a_trial_is_believed(scored):
    folder, content = scored
    path = trial(folder)
    whole, text = trials.read(path, content), path.read_bytes()
    lost = []
    for bit, damaged in flipped_bits(text, budget(300)):
        path.write_bytes(damaged)
        try:
            lost += [bit] * (trials.read(path, content) != whole)
        except DamagedFile:
            continue
    assert lost == []


def test_no_flipped_bit_of_the_description_ends_in_a_traceback(asked, scored):
    folder, content = scored
    path = folder / evaluation_file.NAME
    for bit, damaged in flipped_bits(path.read_bytes(), budget(30)):
        path.write_bytes(damaged)
        assert says(asked, folder) in ("its folder", content["datasets"]), bit


def says(asked, folder):
    """The tables of a folder; or that the error names it."""
    try:
        return evaluation.plan(asked, folder, print)[1]["datasets"]
    except (DataError, ConfigError) as error:
        return "its folder" if str(folder) in str(error) else str(error)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("datasets", 3),
        ("datasets", [3]),
        ("datasets", [{"name": "else"}]),
        ("datasets", [TABLE | {"rows": "9"}]),
        ("datasets", [TABLE | {"classes": 0}]),
        ("protocol", {}),
        ("models", ["a"]),
        ("models", {"a": 1}),
        ("protocol", "small"),
        ("benchmark", None),
    ],
)
def test_a_description_of_another_form_is_refused(scored, key, value):
    folder, content = scored
    path = folder / evaluation_file.NAME
    path.write_text(json.dumps(content | {key: value}))
    with pytest.raises(DataError, match=rf"evaluation\.json is damaged: its {key} cannot be"):
        evaluation_file.read(folder)
