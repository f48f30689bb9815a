"""Arguments of a model's classifier: read, used, part of what a result depends on, and refused."""

import pytest
import tiny_model

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.errors import ConfigError
from tabicl_linear.evaluation.candidates import candidates
from tabicl_linear.shipped import checkpoint_path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tiny_model.save(tiny_model.untrained(), tmp_path_factory.mktemp("model") / "tiny.ckpt")


@pytest.mark.parametrize("false", ["false", "False"])
def test_the_classifier_gets_them(path, false):
    arguments = [["two", "n_estimators=2", f"trees={false}", "long_context=blocks"]]
    plain, two = candidates([f"one={path}", f"two={path}"], [], "default", arguments)
    classifier = two.make(1)
    assert (classifier.n_estimators, classifier.trees, classifier.long_context) == (
        *(2, False),
        "blocks",
    )
    assert plain.make(1).n_estimators is None


def test_the_default_by_its_name_has_its_trees():
    by_name, network = candidates(
        ["default", "network=default"], [], "default", [["network", "trees=false"]]
    )
    by_path = candidates([f"it={checkpoint_path('default')}"], [], "default")[0]
    assert by_name.make(1).get_params() == TabICLLinearClassifier(n_jobs=1).get_params()
    assert network.make(1).trees is False
    assert len({by_name.identity, network.identity, by_path.identity}) == 3


def test_results_of_other_arguments_are_others(path):
    model = [f"it={path}"]
    identities = {
        candidates(model, [], "default", arguments)[0].identity
        for arguments in ([], [["it", "trees=false"]], [["it", "trees=true"]])
    }
    assert len(identities) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["other", "trees=false"], "--arguments other: give one of --model: it"),
        (["it", "trees"], "--arguments it trees: give NAME=VALUE, with one of average_logits"),
        (["it", "branches=2"], "--arguments it branches=2: give NAME=VALUE"),
        (["it", "n_jobs=2"], "--arguments it n_jobs=2: give NAME=VALUE"),
        (["it", "trees=maybe"], "--arguments it: trees='maybe': give 'auto', True or False."),
    ],
)
def test_others_are_refused(path, arguments, message):
    with pytest.raises(ConfigError, match=message):
        candidates([f"it={path}"], [], "default", [arguments])


def test_the_command_hands_them_on(evaluate, model, tmp_path, capsys):
    options = ("--model", f"mine={model}", "--arguments", "mine", "trees=false", "branches=2")
    assert evaluate(*options) == 2
    assert "--arguments mine branches=2: give NAME=VALUE" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
