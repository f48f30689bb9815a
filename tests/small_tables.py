"""A folder of two tiny tables in the form of the development tables."""

from pathlib import Path

import numpy as np
import pandas as pd


def write(folder: Path) -> Path:
    """Two tables with numbers, texts and gaps; the second has three classes."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    rows = []
    for name, classes, size in (("two", 2, 60), ("three", 3, 90)):
        y = np.arange(size) % classes
        text = list("abc" * size)[:size]
        frame = pd.DataFrame({"number": y + rng.normal(size=size), "text": text})
        frame.loc[3, "number"] = np.nan
        frame.loc[4, "text"] = None
        frame["target"] = np.array(["no", "yes", "maybe"])[y]
        frame.to_parquet(folder / f"{name}.parquet")
        rows.append({"name": name, "file": f"{name}.parquet", "target_column": "target"})
    pd.DataFrame(rows).to_csv(folder / "index.csv", index=False)
    return folder
