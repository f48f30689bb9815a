"""Config files made of other files: order, folders, classes, and what is refused."""

import pytest
import yaml
from command_line import CONFIGS

from tabicl_linear import build_task
from tabicl_linear.errors import ConfigError
from tabicl_linear.overlays import expanded, laid_over, loaded

MADE = sorted(p for p in CONFIGS.rglob("*.yaml") if "overlays" in yaml.safe_load(p.read_text()))


@pytest.fixture
def write(tmp_path):
    def call(**files):
        for name, content in files.items():
            path = tmp_path / f"{name}.yaml"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return call


def test_later_overlays_win_and_the_file_itself_wins_over_all(write):
    path = write(
        low="{a: {x: 1, y: 1, z: 1}}",
        high="{a: {y: 2, z: 2}}",
        root="{overlays: [low, high], a: {z: 3}}",
    )
    assert expanded(path) == {"a": {"x": 1, "y": 2, "z": 3}}
    write(root="{overlays: [high, low], a: {z: 3}}")
    assert expanded(path) == {"a": {"x": 1, "y": 1, "z": 3}}


def test_names_count_from_the_folder_of_the_file_that_says_them(write, tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "middle.yaml").write_text("overlays: [../low]\nb: 2\n")
    path = write(low="a: 1", root="overlays: [inner/middle]")
    monkeypatch.chdir(tmp_path / "inner")
    assert expanded(path) == {"a": 1, "b": 2}


@pytest.mark.parametrize(("above", "kept"), [("Same", {"x": 1, "y": 2}), ("Other", {"y": 2})])
def test_only_the_same_class_keeps_the_arguments_below(above, kept):
    below = {"class_path": "Same", "init_args": {"x": 1}}
    over = {"class_path": above, "init_args": {"y": 2}}
    assert laid_over({"m": below}, {"m": over}) == {"m": {"class_path": above, "init_args": kept}}
    assert below == {"class_path": "Same", "init_args": {"x": 1}}


def test_a_relative_path_works_from_another_folder(monkeypatch):
    monkeypatch.chdir(CONFIGS / "length")
    architecture = build_task("../softmax.yaml", "../smoke.yaml").model.architecture
    assert (architecture.blocks.norm, architecture.dim) == ("post_layer", 32)


@pytest.mark.parametrize("path", MADE, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_a_file_says_nothing_that_its_overlays_say(path):
    tree = yaml.safe_load(path.read_text())
    below = {}
    for name in tree.pop("overlays"):
        below = laid_over(below, expanded(path.parent / f"{name}.yaml"))
    assert list(_repeated(below, tree)) == []


def test_a_repetition_is_found():
    """Twin."""
    assert list(_repeated({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})) == ["b"]


def _repeated(below, above):
    for key in below.keys() & above.keys():
        if isinstance(above[key], dict) and isinstance(below[key], dict):
            yield from _repeated(below[key], above[key])
        elif above[key] == below[key]:
            yield key


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"root": "overlays: [nowhere]"}, ["overlay of root.yaml: no such file", "without .yaml"]),
        (
            {"low": "overlays: [root]", "root": "overlays: [low]"},
            ["overlays lead in a circle (root.yaml -> low.yaml -> root.yaml)", "take one out"],
        ),
        ({"root": "overlays: [root]"}, ["circle (root.yaml -> root.yaml)"]),
        ({"root": "overlays: low"}, ["overlays=low", "give a list"]),
        ({"root": "overlays: [3]"}, ["overlays=[3]", "give a list"]),
        ({"low": "[1]", "root": "overlays: [low]"}, ["low.yaml, an overlay of", "no config"]),
        ({"low": "{a: [1", "root": "overlays: [low]"}, ["low.yaml, an overlay of", "not valid"]),
        ({"low": b"a: \xf6", "root": "overlays: [low]"}, ["low.yaml, an overlay of", "UTF-8"]),
        (
            {"root": "model: {backend: torch}\ndata:\n  seed: 1\nmodel:\n  backend: cpp"},
            ["root.yaml is not valid YAML: the key 'model' occurs twice", "line 4"],
        ),
        (
            {"low": "model: {backend: torch}", "root": "overlays: [low]\nmodel:\n#  backend: cpp"},
            ["--config root.yaml: model is empty; give it keys"],
        ),
        (
            {"low": "model: {archi: 1}", "root": "overlays: [low]"},
            ["Unknown option or config key 'model.archi'"],
        ),
    ],
)
def test_what_is_refused_is_one_line(write, files, words):
    with pytest.raises(ConfigError) as error:
        build_task(write(**files))
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), error.value


def test_a_file_may_be_an_overlay_twice(write):
    """Twin of the circle: two ways to one file are none."""
    files = {"low": "a: 1", "one": "overlays: [low]", "two": "overlays: [low]"}
    assert expanded(write(**files, root="overlays: [one, two]")) == {"a": 1}


@pytest.mark.parametrize("text", ["a: &a {b: *a}", "a: &a [*a]", "a: &a {b: [{c: *a}]}"])
def test_a_file_that_contains_itself_is_refused(write, text):
    with pytest.raises(ConfigError, match="alias"):
        expanded(write(root=text))


def test_an_alias_elsewhere_is_none_of_that(write):
    assert expanded(write(root="{a: &a {x: 1}, b: *a, c: [*a, *a]}"))["c"] == [{"x": 1}, {"x": 1}]


def test_the_quick_reader_reads_as_pyyaml_s_own():
    texts = [path.read_text() for path in CONFIGS.rglob("*.yaml")]
    assert len(texts) > 40
    for text in (*texts, "a: 1e-5\nb: 2020-01-01\nc: ~\nd: [yes, 0x1f, 1_000, .inf]"):
        assert repr(loaded(text)) == repr(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text", ["{a: [1", "\ta: 1", "a: \x07", "a: \udc80", "a: !!python/name:os.system"]
)
def test_what_is_refused_is_refused_in_its_words(text):
    with pytest.raises(yaml.YAMLError) as expected:
        yaml.safe_load(text)
    with pytest.raises(yaml.YAMLError) as error:
        loaded(text)
    assert str(error.value) == str(expected.value)


def test_a_hundred_thousand_brackets_do_not_end_the_process():
    with pytest.raises(RecursionError):
        loaded(100_000 * "[")
