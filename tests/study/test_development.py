"""Arms and baselines on development tables: kept once, and shown in one table."""

import pandas as pd
import pytest
from evaluation import benchmark_folder
from study import made_up

from experiments.study import development
from tabicl_linear.parquet import write_table


@pytest.fixture
def measured(tmp_path):
    folder = made_up.unit(tmp_path / "measured", "deltanet", scale="smoke")
    folds = [
        {"benchmark": "development", "table": table, "fold": fold, "roc_auc": level + 0.1 * fold}
        | {"num_rows": 50, "accuracy": 0.5, "log_loss": 1.0, "error": ""}
        for table, level in (("a", 0.5), ("b", 0.7))
        for fold in (0, 1)
    ]
    write_table(folder / "development.parquet", pd.DataFrame(folds))
    return tmp_path / "measured"


def shown(capsys):
    lines = capsys.readouterr().out.splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_baselines_are_scored_once_and_stand_beside_the_arms(measured, tmp_path, capsys):
    tables = benchmark_folder.write(tmp_path / "tables")
    index = pd.read_csv(tables / "index.csv").assign(suite="development")
    index.to_csv(tables / "index.csv", index=False)
    options = ["--scale", "smoke", "--measured", str(measured)]
    new = ["--tables", str(tables), "--baseline", "logistic_regression"]
    assert development.main([*options, *new]) == 0
    first = shown(capsys)
    assert first[0] == ["deltanet", "0", "2", "0.6500", "0.5000", "1.0000"]
    assert first[1][0] == "logistic_regression"
    assert development.main(options) == 0
    assert shown(capsys) == first
    assert development.main([*options, *new]) == 0
    assert len(shown(capsys)) == 2  # scored anew, not twice


def test_input_that_cannot_be_used_is_one_line(measured, tmp_path, capsys):
    options = ["--scale", "smoke", "--measured", str(measured), "--baseline"]
    with pytest.raises(SystemExit):
        development.main([*options, "logistic_regression"])
    assert "give their folder, --tables FOLDER" in capsys.readouterr().err
    assert development.main(["--scale", "smoke", "--measured", str(tmp_path)]) == 2
    assert "run ARM --scale smoke --measure development" in capsys.readouterr().err
    tables = str(benchmark_folder.write(tmp_path / "tables"))
    assert development.main([*options, "oracle", "--tables", tables]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not (measured / "smoke" / development.FILE).exists()
