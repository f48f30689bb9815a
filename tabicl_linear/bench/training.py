"""The training step of Lightning's own loop, as a call, and the dense products within it."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.flop_counter import FlopCounterMode

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.training.noise import without_noise
from tabicl_linear.training.task import InContextTask
from tabicl_linear.types import Tensor

PRECISIONS = {"float32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
"""The Trainer's names of precisions."""

Step = Callable[[TaskBatch], Tensor]
"""Trains on a batch and returns the loss."""

Layout = tuple[torch.Size, tuple[int, ...], torch.dtype]
"""Shape, stride and dtype."""

Result = TypeVar("Result")


def _step(trainer: Trainer, batch: TaskBatch) -> Tensor:
    # Everything the loop does with a batch that is on the device: autocast, loss, backward pass,
    # clipping, optimiser, schedule.
    loop = trainer.fit_loop.epoch_loop
    arguments = OrderedDict(batch=batch, batch_idx=0)
    loss: Tensor = loop.automatic_optimization.run(trainer.optimizers[0], 0, arguments)["loss"]
    loop.update_lr_schedulers("step", update_plateau_schedulers=False)
    return loss


def within_training(
    task: InContextTask,
    work: Callable[[Step], Result],
    device: torch.device,
    precision: str = "float32",
    clipping: float | None = 1.0,
) -> Result:
    """Start a training, call `work` with the step of Lightning's loop, and return its result."""
    results: list[Result] = []

    def begin(trainer: Trainer, _: LightningModule) -> None:
        results.append(work(partial(_step, trainer)))
        trainer.should_stop = True

    nothing: DataLoader[int] = DataLoader([0], batch_size=None)  # type: ignore[arg-type]
    trainer = make_trainer(device, precision, LambdaCallback(on_train_start=begin), clipping)
    with without_noise():
        trainer.fit(task, nothing, nothing)
    return results[0]


def make_trainer(
    device: torch.device,
    precision: str,
    callback: Callback,
    clipping: float | None = 1.0,
    max_steps: int = 400_000,
) -> Trainer:
    """A Trainer on one device that writes nothing and steps after every batch.

    `clipping` is the maximum norm of the gradient.
    """
    # It would print the devices it finds.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    return Trainer(
        accelerator=device.type,
        devices=1 if device.type == "cpu" else [device.index or 0],
        precision=PRECISIONS[precision],  # type: ignore[arg-type]
        callbacks=[callback],
        gradient_clip_val=clipping,
        max_steps=max_steps,
        max_epochs=-1,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )


def noise(tasks: int, rows: int, features: int, classes: int, device: torch.device) -> TaskBatch:
    """Return tasks of noise; half of the rows are context, with every class if there is room."""
    generator = torch.Generator().manual_seed(rows)
    return TaskBatch(
        x=torch.randn(tasks, rows, features, generator=generator),
        y=(torch.arange(rows) % classes).repeat(tasks, 1),
        categorical=torch.zeros(tasks, features, dtype=torch.bool),
        num_context=rows // 2,
        index=0,
    ).to(device)


class DenseProducts(TorchDispatchMode):
    """Records the products of two matrices computed within it, including backward passes.

    These are the products of dense layers; rules use batched products, which do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Layout, Layout]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the operator and run it."""
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            left, right = args[-2:]
            self.products.append((_layout(left), _layout(right)))
        return func(*args, **(kwargs or {}))

    def replay(self, device: torch.device) -> Callable[[], None]:
        """Return a call that computes only the products, of random factors with the same layouts.

        Products of the same layout share their factors.
        """
        layouts = {layout for product in self.products for layout in product}
        factors = {layout: _random(layout, device) for layout in layouts}
        pairs = [(factors[left], factors[right]) for left, right in self.products]

        def run() -> None:
            for left, right in pairs:
                torch.mm(left, right)

        return run


def flops(call: Callable[[], object]) -> int:
    """Count the floating-point operations of a call's matrix products."""
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def _layout(x: Tensor) -> Layout:
    return x.shape, x.stride(), x.dtype


def _random(layout: Layout, device: torch.device) -> Tensor:
    shape, stride, dtype = layout
    length = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    return torch.randn(length, device=device).to(dtype).as_strided(shape, stride)
