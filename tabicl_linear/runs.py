"""Every trained model of the paper by name: the one place that knows which overlays make it.

Paths are below `configs/`. Train one with `tabicl-linear fit` and a `--config` for each overlay.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Run(NamedTuple):
    """A trained model of the paper.

    Attributes:
        overlays: Config files, later ones laid over earlier ones.
        shown_in: Table or figure, or section.
        parameters: Published number of parameters; None where there is none.
    """

    overlays: tuple[str, ...]
    shown_in: str
    parameters: int | None = None


_FAMILIES = {
    "gla": ("gla", 12_567_882),
    "delta": ("deltanet", 12_489_162),
    "gated_delta": ("gated_deltanet", 12_504_426),
    "mamba2": ("mamba2", 12_492_582),
}
_STRATEGIES = ("comb_mt", "int_st", "int_mt")
_MITIGATIONS = {
    "bidirectional": "readout/bidirectional",
    "fs": "readout/final_state",
    "weaving": "mitigation/weaving",
    "state_passing": "mitigation/state_passing",
    "long_compute_matched": "length/long_compute_matched",
}


def _runs() -> dict[str, Run]:
    runs = {
        "softmax": Run(("softmax",), "table 2", 12_507_210),
        "linear_noncausal": Run(("linear_noncausal",), "table 2", 12_473_482),
        "linear_causal": Run(("linear_causal",), "table 2", 12_473_802),
        "delta_fs_decay": Run(("deltanet_fs_decay",), "table 3", 12_489_162),
        "delta_decay": Run(("deltanet_decay",), "table 3", 12_489_162),
        "delta_decay_int_mt": Run(("deltanet_decay_int_mt",), "table 3", 12_535_242),
        "delta_int_mt_conv": Run(("deltanet_int_mt",), "appendix D.8"),
        "softmax_causal": Run(("softmax_causal",), "figure 2a"),
        "ridge": Run(("ridge",), "appendix D.3", 12_473_802),
        "linear_causal_frobenius": Run(
            ("linear_causal", "readout/causal_frobenius"), "appendix D.6"
        ),
        "linear_noncausal_frobenius": Run(
            ("linear_noncausal", "readout/final_state_frobenius"), "appendix D.6"
        ),
        "gla_mimetic": Run(("gla", "mitigation/mimetic"), "appendix D.5"),
        "delta_two_axis": Run(("deltanet", "axis/two_axis"), "appendix D.9"),
        "linear_causal_two_axis": Run(("linear_causal", "axis/two_axis"), "appendix D.9"),
    }
    for name, (config, parameters) in _FAMILIES.items():
        runs[name] = Run((config,), "tables 1 and 2", parameters)
        for strategy in _STRATEGIES:
            runs[f"{name}_{strategy}"] = Run((config, f"strategy/{strategy}"), "table 1")
    for length in ("8k", "16k", "64k"):
        runs[f"delta_log_uniform_{length}"] = Run(
            ("deltanet", f"length/log_uniform_{length}"), "appendix D.4"
        )
    for mitigation, overlay in _MITIGATIONS.items():
        runs[f"delta_{mitigation}"] = Run((_FAMILIES["delta"][0], overlay), "figure 2b")
        runs[f"gla_{mitigation}"] = Run((_FAMILIES["gla"][0], overlay), "appendix D.5")
    runs["delta_fs"] = Run(("deltanet_fs",), "table 3 and figure 2b", 12_489_162)
    return dict(sorted(runs.items()))


RUNS: Mapping[str, Run] = _runs()
