"""The loss, the layout of the scores, and stopping at what is not finite."""

import ast
import re
from functools import partial

import pytest
import torch

from tabicl_linear import build_task
from tabicl_linear.config import build_data
from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.readouts import Causal
from tabicl_linear.strategies.combined import Combined
from tabicl_linear.training.scores import cross_entropy, score
from tabicl_linear.training.task import InContextTask


@pytest.fixture
def build(tiny):
    paths = [tiny[i + 1] for i, option in enumerate(tiny) if option == "--config"]
    return lambda *overrides: (
        build_task(*paths, overrides=overrides),
        build_data(*paths, overrides=overrides),
    )


def test_building_leaves_global_generators_alone_and_is_reproducible(build):
    before = torch.get_rng_state()
    one, two, other = build()[0], build()[0], build("seed_everything=1")[0]
    assert torch.equal(before, torch.get_rng_state())
    pairs = list(zip(one.parameters(), two.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)


def test_overrides_and_linked_numbers_reach_the_model(build):
    task, _ = build("data.shapes.max_classes=7", "data.shapes.max_features=9")
    assert task.model.architecture.num_classes == 7
    assert task.model.architecture.num_features == 9


def test_hyper_parameters_are_plain_data(build):
    hparams = dict(build()[0].hparams)
    assert hparams["mixer"]["class_path"] == "tabicl_linear.mixers.delta.DeltaNet"
    assert hparams["mixer"]["init_args"]["decay_constant"] == 256
    assert hparams["architecture"]["num_classes"] == 10
    assert ast.literal_eval(repr(hparams)) == hparams


def test_a_task_of_python_s_own_objects_says_nothing(build):
    """Warnings are errors here: Lightning has one about modules among the hyper-parameters."""
    task = build()[0]
    again = InContextTask(
        partial(DeltaNet, decay_constant=256),
        Causal,
        Combined(),
        task.model.architecture,
        task.optimizer,
        task.schedule,
    )
    again.model.load_state_dict(task.model.state_dict())
    assert again.hparams["strategy"].target == "single"


def test_a_mixer_whose_tokens_see_each_other_makes_no_task(build):
    class Averaging(DeltaNet):
        def output(self, heads, streams, x):
            return super().output(heads, streams, x) + x.mean(1, keepdim=True)

    task = build()[0]
    parts = (Causal, Combined(), task.model.architecture, task.optimizer, task.schedule)
    with pytest.raises(ConfigError, match="Averaging: its output for three tokens is not that of"):
        InContextTask(partial(Averaging, decay_constant=256), *parts)


def test_the_training_loss_is_a_mean_over_tasks_of_a_mean_over_queries(build):
    task, data = build()
    task.log = lambda *args, **kwargs: None
    batch = data.stream("train").batch(0)
    loss = task.training_step(batch, 0)
    logits = task.model(batch).double()
    labels = batch.y[:, batch.num_context :]
    per_row = -logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    torch.testing.assert_close(loss.double(), per_row.mean(1).mean(), rtol=1e-5, atol=0)


MULTI = ("model.readout=tabicl_linear.readouts.Causal", "model.strategy.init_args.target=multi")


def test_scores_use_the_single_target_layout_for_every_strategy(build):
    """In Int-MT, training logits see the labels of earlier queries; scored ones must not."""
    task, data = build("model.strategy=tabicl_linear.strategies.interleaved.Interleaved", *MULTI)
    batch = data.stream("train").batch(1)
    context, queries = batch.x.tensor_split([batch.num_context], dim=1)
    state = task.model.fit(context, batch.y[:, : batch.num_context], categorical=batch.categorical)
    logits = task.model.predict(state, queries)
    labels = batch.y[:, batch.num_context :]
    task.log_dict = lambda *args, **kwargs: None
    task.validation_step(batch, 0)
    expected = score(logits, labels).loss.mean()
    torch.testing.assert_close(task.val_scores.loss.compute(), expected)
    in_training = cross_entropy(task.model(batch), labels).mean()
    assert not torch.isclose(in_training, expected, rtol=1e-4)


def test_all_parameters_are_in_one_group_with_weight_decay(build):
    task, _ = build()
    optimizer = task.optimizer(task.parameters())
    (group,) = optimizer.param_groups
    assert len(group["params"]) == len(list(task.parameters()))
    assert group["weight_decay"] == 0.01


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("model.schedule.init_args.floor=1", "use a floor between 0 and the learning rate."),
        ("model.optimizer.init_args.lr=-1", "such as --model.optimizer.lr 3e-5."),
        ("model.optimizer=torch.optim.SparseAdam", "use torch.optim.AdamW."),
        ("model.optimizer=torch.optim.LBFGS", "use torch.optim.AdamW."),
        ("model.optimizer=torch.optim.Muon", "training.MuonAdamW (configs/learner/muon.yaml)."),
        ("model.schedule=torch.optim.lr_scheduler.ReduceLROnPlateau", "learner/stable.yaml)."),
    ],
)
def test_impossible_optimisation_is_refused_at_construction(build, override, remedy):
    with pytest.raises(ConfigError) as refused:
        build(override)
    assert str(refused.value).endswith(remedy)


def test_an_eps_that_is_zero_in_the_dtype_of_the_weights_is_refused(fit, tmp_path, capfd):
    assert fit("--trainer.precision", "16-true", "--trainer.accelerator", "cpu") == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.startswith("tabicl-linear fit: model.optimizer: eps=1e-08 is zero in float16")
    assert line.endswith("bf16-mixed.")
    assert not list(tmp_path.glob("runs/*"))


class TestNotFinite:
    def test_the_run_stops_before_the_step_and_says_how_to_see_the_batch(
        self, fit, load, tmp_path, capfd
    ):
        # A learning rate that overflows float32 within a few steps.
        options = ("--model.optimizer.init_args.lr", 1e30, "--checkpoint.every_n_steps", 1)
        assert fit(*options, "--model.schedule.init_args.warmup", 0) == 1
        line = capfd.readouterr().err.splitlines()[-1]
        assert line.startswith("tabicl-linear fit: The loss is ")
        step, index = map(int, re.search(r"step (\d+), batch (\d+)", line).groups())
        checkpoint = load(tmp_path / "runs" / "version_0" / "last.ckpt")
        assert checkpoint["global_step"] == step
        assert index in (2 * step, 2 * step + 1)
        statement = re.search(r"(from tabicl_linear\.config .*)\. Lower", line)[1]
        setup, expression = statement.split("; ")
        scope = {}
        exec(setup, scope)
        batch = eval(expression, scope)
        assert batch.index == index
        task = build_task(
            tmp_path / "runs" / "version_0" / "config.yaml",
        )
        task.load_state_dict(checkpoint["state_dict"])
        batches = [
            eval(expression.replace(f"batch({index})", f"batch({i})"), scope)
            for i in (2 * step, 2 * step + 1)
        ]
        assert batches[index - 2 * step].x.equal(batch.x)

    def test_a_gradient_that_is_not_finite_stops_too(self, build):
        task, _ = build()
        task.trainer = _Trainer()
        task._window = [6, 7]
        parameter = next(task.parameters())
        parameter.grad = torch.full_like(parameter, float("inf"))
        with pytest.raises(RuntimeError, match=r"gradient norm is inf at .* step 3, batch 6, 7"):
            task.on_before_optimizer_step(task.optimizer(task.parameters()))


class _Trainer:
    precision = "32-true"
    global_step = 3
    global_rank = 0
    default_root_dir = "runs/version_0"
