"""A folder of three small tables of two suites."""

import numpy as np
import pandas as pd


def write(folder, *, rows=120):
    """Two tables of the suite `small`, one of `other`; numbers, categories and gaps."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    index = []
    for number, (name, classes, suite) in enumerate(
        [("two", 2, "small"), ("three", 3, "small"), ("else", 2, "other")]
    ):
        y = rng.permutation(np.arange(rows) % classes)
        kind = pd.Categorical.from_codes((y + rng.integers(0, 2, rows)) % 3, ["a", "b", "c"])
        frame = pd.DataFrame({"number": y + rng.normal(size=rows), "kind": kind})
        frame.loc[3, "number"] = np.nan
        frame.loc[4, "kind"] = None
        frame["target"] = np.array(["no", "yes", "maybe"])[y]
        frame.to_parquet(folder / f"{name}.parquet")
        index.append(
            {
                "name": name,
                "file": f"{name}.parquet",
                "suite": suite,
                "openml_id": 100.0 + number if number else None,
                "target_column": "target",
            }
        )
    pd.DataFrame(index).to_csv(folder / "index.csv", index=False)
    return folder
