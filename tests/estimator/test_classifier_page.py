"""The examples of docs/classifier.md run as they stand, one after the other."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from contract.variants import make

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator import refinement
from tabicl_linear.estimator.learners import pretrained

PAGE = Path(__file__).parents[2] / "docs" / "classifier.md"
# The table has more columns than the small models take.
pytestmark = [
    pytest.mark.usefixtures("few_trees"),
    pytest.mark.filterwarnings("ignore:The table has . usable columns:UserWarning"),
]
EXAMPLES = re.compile(r"```python\n(.*?)```", re.DOTALL)


def customers(rows, seed):
    """A number, texts of each kind, gaps, and an identifier; the number tells the class."""
    rng = np.random.default_rng(seed)
    churned = rng.integers(0, 2, rows)
    spent = rng.uniform(100, 2000, rows)
    days = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), unit="D")
    table = pd.DataFrame(
        {
            "customer": [f"c{seed}{number:03}" for number in range(rows)],
            "age": 30.0 + 20 * churned + rng.normal(size=rows),
            "plan": rng.choice(["basic", "gold", ""], rows),
            "joined": days.strftime("%Y-%m-%d"),
            "spent": [f"${amount:,.2f}" for amount in spent],
            "churned": np.array(["no", "yes"])[churned],
        }
    )
    table.loc[rng.random(rows) < 0.1, "age"] = np.nan
    return table


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the examples name; small models in place of the weights, and few passes."""
    monkeypatch.chdir(tmp_path)
    models = {
        "default": make("DeltaNet", "final_state", axis="ridge_row"),
        "streaming": make("DeltaNet", "causal", axis="ridge_earlier_row"),
    }
    monkeypatch.setattr(pretrained, "load", models.__getitem__)
    monkeypatch.setattr(refinement, "MAX_PASSES", 3)
    train, test = customers(200, seed=0), customers(50, seed=1)
    train.to_csv("train.csv", index=False)
    train.to_parquet("train.parquet")
    test.drop(columns="churned").to_csv("test.csv", index=False)
    return tmp_path


@pytest.mark.filterwarnings("ignore:Column 'customer' has")
@pytest.mark.filterwarnings("ignore:Text is read in columns:UserWarning")
def test_the_examples_run(folder, capsys):
    text = PAGE.read_text()
    names = {}
    for example in EXAMPLES.findall(text):
        exec(compile(example, str(PAGE), "exec"), names)
    columns = capsys.readouterr().out.splitlines()
    assert columns[:4] == [
        "customer CategoryColumn",
        "age NumericColumn",
        "age MissingColumn",
        "plan CategoryColumn",
    ]
    assert {line.split()[0] for line in columns} == set(names["X"].columns)
    truth = customers(50, seed=1)["churned"]
    assert (names["classifier"].predict(names["test"]) == truth).mean() > 0.8
    expected = names["classifier"].predict_proba(names["test"])
    np.testing.assert_array_equal(names["loaded"].predict_proba(names["test"]), expected)
    assert names["growing"].prequential_["rows_seen"].tolist() == [100]
    assert names["streamed"].n_samples_seen_ == 200
    assert set(names["measures"]["measure"]) > {"norm", "effective_rank"}
    assert (folder / "churn.state").stat().st_size > 0


@pytest.mark.filterwarnings("ignore:Column 'customer' has")
def test_a_warning_names_the_columns_whose_text_is_read(folder):
    train = pd.read_csv("train.csv")
    with pytest.warns(UserWarning, match=r"Text is read in columns 'joined' .*'spent'"):
        TabICLLinearClassifier(n_estimators=1).fit(train.drop(columns="churned"), train["churned"])


def test_its_table_is_what_the_examples_read(folder):
    header = next(line for line in PAGE.read_text().splitlines() if line.startswith("| customer"))
    assert [cell.strip() for cell in header.strip("|").split("|")] == list(customers(1, 0))
