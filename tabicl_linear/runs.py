"""Every trained model of the paper by name, with the config files that define it.

Paths are relative to `configs/`. Some models have a file with their name; the others add overlays
to one of those. Train a model with `tabicl-linear fit` and a `--config` for each of its files.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Run(NamedTuple):
    """A trained model of the paper.

    Attributes:
        overlays: Config files; later ones override earlier ones.
        shown_in: Table, figure or section of the paper.
        parameters: Published number of parameters; None if not published.
    """

    overlays: tuple[str, ...]
    shown_in: str
    parameters: int | None = None


_FILES: dict[str, tuple[str, int | None]] = {
    "deltanet": ("tables 1 and 2", 12_489_162),
    "deltanet_decay": ("table 3", 12_489_162),
    "deltanet_decay_int_mt": ("table 3", 12_535_242),
    "deltanet_fs": ("table 3 and figure 2b", 12_489_162),
    "deltanet_fs_decay": ("table 3", 12_489_162),
    "deltanet_int_mt_conv": ("appendix D.8", None),
    "gated_deltanet": ("tables 1 and 2", 12_504_426),
    "gla": ("tables 1 and 2", 12_567_882),
    "linear_causal": ("table 2", 12_473_802),
    "linear_noncausal": ("table 2", 12_473_482),
    "mamba2": ("tables 1 and 2", 12_492_582),
    "ridge": ("appendix D.3", 12_473_802),
    "softmax": ("table 2", 12_507_210),
    "softmax_causal": ("figure 2a", None),
}
_MITIGATIONS = {
    "bidirectional": "readout/bidirectional",
    "weaving": "mitigation/weaving",
    "state_passing": "mitigation/state_passing",
    "long_compute_matched": "length/long_compute_matched",
}


def _runs() -> dict[str, Run]:
    runs = {name: Run((name,), *about) for name, about in _FILES.items()}

    def add(file: str, change: str, overlay: str, shown_in: str) -> None:
        runs[f"{file}_{change}"] = Run((file, overlay), shown_in)

    for file in ("deltanet", "gated_deltanet", "gla", "mamba2"):
        for strategy in ("comb_mt", "int_st", "int_mt"):
            add(file, strategy, f"strategy/{strategy}", "table 1")
    for length in ("log_uniform_8k", "log_uniform_16k", "log_uniform_64k"):
        add("deltanet", length, f"length/{length}", "appendix D.4")
    for mitigation, overlay in _MITIGATIONS.items():
        add("deltanet", mitigation, overlay, "figure 2b")
        add("gla", mitigation, overlay, "appendix D.5")
    add("gla", "fs", "readout/final_state", "appendix D.5")
    add("gla", "mimetic", "mitigation/mimetic", "appendix D.5")
    add("linear_causal", "frobenius", "readout/causal_frobenius", "appendix D.6")
    add("linear_noncausal", "frobenius", "readout/final_state_frobenius", "appendix D.6")
    for file in ("deltanet", "linear_causal"):
        add(file, "two_axis", "axis/two_axis", "appendix D.9")
    return dict(sorted(runs.items()))


RUNS: Mapping[str, Run] = _runs()
