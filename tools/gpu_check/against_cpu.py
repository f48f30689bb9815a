"""Priors, cells, ridge inputs and Muon on the device, and on the CPU."""

from collections.abc import Callable, Iterator
from copy import deepcopy

import torch

from tabicl_linear.architecture import Architecture
from tabicl_linear.architecture_options import Cells
from tabicl_linear.bench.training import noise
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import Causal
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.strategies.combined import Combined
from tabicl_linear.training.muon import MuonAdamW
from tools.gpu_check.results import Result

TOLERANCE = 1e-3
"""Relative RMS error of float32 through a few layers, with products in another order."""
MUON_TOLERANCE = 3e-2
"""Muon orthogonalises in bfloat16."""


def check(device: torch.device, *, quick: bool) -> Iterator[Result]:
    """A row for each. Devices draw other numbers, so priors are only checked for sense."""
    from tabicl_linear.priors import Mixture, TabPFNv1Prior, TreePrior

    tasks, rows = (4, 60) if quick else (32, 1000)
    yield _drawn("tree prior", TreePrior(), device, tasks, rows)
    mixture = Mixture([TabPFNv1Prior(), TreePrior()], [0.5, 0.5])
    yield _drawn("mixture prior", mixture, device, tasks, rows)
    cells = Architecture(
        dim=64,
        depth=2,
        cells=Cells(
            offsets=(0, 1, 3), label_in_every_cell=True, head_reads="mean", attention_every=1
        ),
    )
    yield _predicted("cells axis", cells, device, rows)
    for calibration in ("confidence", "logistic"):
        options = RidgeOptions("earlier_rows", calibration=calibration)
        architecture = Architecture(dim=64, depth=2, ridge_inputs=options)
        yield _predicted(f"ridge inputs, {calibration}", architecture, device, rows)
    yield _stepped(device)


def _drawn(name: str, prior: object, device: torch.device, tasks: int, rows: int) -> Result:
    from tabicl_linear.priors import Prior, TaskShape

    assert isinstance(prior, Prior)
    shape = TaskShape(
        batch_size=tasks, num_rows=rows, num_context=rows // 2, num_features=20, num_classes=10
    )
    result = prior.sample_tasks(shape, torch.Generator(device).manual_seed(0))
    there = all(part.device.type == device.type for part in result)
    spread = float(result.x.nan_to_num().std())
    classes = sorted({int(y.max()) + 1 for y in result.y})
    good = there and not result.x.isinf().any() and spread > 0 and classes[0] >= 2
    detail = f"{tasks} datasets of {rows} x 20, {classes[0]} to {classes[-1]} classes"
    return Result(name, "ok" if good else "FAIL", detail)


def _predicted(name: str, architecture: Architecture, device: torch.device, rows: int) -> Result:
    torch.manual_seed(0)
    model = InContextModel.from_parts(
        DeltaNet, Causal, strategy=Combined(), architecture=architecture
    )
    batch = noise(2, rows, 20, 10, torch.device("cpu"))

    @torch.inference_mode()
    def logits(on: torch.device) -> torch.Tensor:
        mine, num_context = deepcopy(model).place("torch").to(on), rows // 2
        x, y = batch.x.to(on), batch.y.to(on)
        state = mine.fit(x[:, :num_context], y[:, :num_context])
        return mine.predict(state, x[:, num_context:]).cpu()

    return _compared(name, logits, device, TOLERANCE)


def _stepped(device: torch.device) -> Result:
    torch.manual_seed(0)
    model = InContextModel.from_parts(
        DeltaNet, Causal, strategy=Combined(), architecture=Architecture(dim=64, depth=2)
    )
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(p.shape, generator=generator) for p in model.parameters()]

    def changes(on: torch.device) -> torch.Tensor:
        mine = deepcopy(model).to(on)
        before = torch.cat([p.detach().flatten() for p in mine.parameters()])
        optimizer = MuonAdamW(mine.named_parameters())
        for _ in range(3):
            for parameter, gradient in zip(mine.parameters(), gradients, strict=True):
                parameter.grad = gradient.to(on)
            optimizer.step()
        after = torch.cat([p.detach().flatten() for p in mine.parameters()])
        return (after - before).cpu()

    return _compared("Muon", changes, device, MUON_TOLERANCE)


def _compared(
    name: str,
    compute: Callable[[torch.device], torch.Tensor],
    device: torch.device,
    tolerance: float,
) -> Result:
    result, truth = compute(device), compute(torch.device("cpu"))
    error = float((result - truth).norm() / truth.norm())
    detail = f"relative RMS error {error:.1e} against the CPU, at most {tolerance:.0e}"
    return Result(name, "ok" if error <= tolerance else "FAIL", detail)
