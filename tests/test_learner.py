"""Block ensembles: disjoint blocks, the mean of their logits, batched or one by one."""

import pytest
import torch
from contract.variants import make, task
from tolerances import CONTRACT, assert_close

from tabicl_linear.errors import ConfigError
from tabicl_linear.learner import BlockEnsemble


@pytest.mark.parametrize("num_rows", [1, 7, 8, 9, 50, 3001])
@pytest.mark.parametrize("max_rows", [1, 8, 3000])
def test_blocks_are_disjoint_cover_everything_and_differ_by_at_most_one_row(num_rows, max_rows):
    pieces = BlockEnsemble(None, max_rows).blocks(num_rows)
    rows = torch.cat([piece.flatten() for piece in pieces])
    lengths = [piece.shape[1] for piece in pieces]
    assert torch.equal(rows.sort().values, torch.arange(num_rows))
    assert max(lengths) <= max_rows
    assert max(lengths) - min(lengths) <= 1
    assert sum(map(len, pieces)) == -(-num_rows // max_rows)
    assert all(
        torch.equal(a, b)
        for a, b in zip(pieces, BlockEnsemble(None, max_rows).blocks(num_rows), strict=True)
    )


@pytest.mark.parametrize(
    ("mixer", "readout"),
    [("DeltaNet", "causal"), ("Ridge", "final_state"), ("Softmax", "final_state")],
)
def test_batched_blocks_equal_the_mean_over_blocks_one_by_one(mixer, readout):
    model, batch = make(mixer, readout), task(60, num_context=50)
    x, y, queries = batch.x[:, :50], batch.y[:, :50], batch.x[:, 50:]
    ensemble = BlockEnsemble(model, 12)
    logits = ensemble.predict(ensemble.fit(x, y, categorical=batch.categorical), queries)
    single = []
    for piece in ensemble.blocks(50):
        for rows in piece:
            state = model.fit(x[:, rows], y[:, rows], categorical=batch.categorical)
            single.append(model.predict(state, queries))
    assert len(single) == 5
    assert_close(logits, torch.stack(single).mean(0), CONTRACT)


def test_a_context_of_one_block_is_left_whole():
    model, batch = make("DeltaNet", "causal"), task()
    x, y, queries = batch.x[:, :20], batch.y[:, :20], batch.x[:, 20:]
    ensemble = BlockEnsemble(model, 20)
    whole = model.predict(model.fit(x, y), queries)
    assert torch.equal(ensemble.predict(ensemble.fit(x, y), queries), whole)


def test_a_class_that_blocks_lack_is_judged_by_those_that_have_it():
    model, batch = make("DeltaNet", "final_state", axis="cells"), task(60, num_context=50)
    assert model.architecture.mask_absent_classes
    x, queries = batch.x[:, :50], batch.x[:, 50:]
    y = torch.arange(50).remainder(2).expand(len(x), -1).clone()
    pieces = BlockEnsemble(model, 12).blocks(50)
    rare = pieces[0][0, 3]
    y[:, rare] = 2
    ensemble = BlockEnsemble(model, 12, abstain=True)
    logits = ensemble.predict(ensemble.fit(x, y), queries)
    logs, has = [], []
    for piece in pieces:
        for rows in piece:
            state = model.fit(x[:, rows], y[:, rows])
            logs.append(model.predict(state, queries).log_softmax(-1))
            has.append(bool((rows == rare).any()))
    assert sum(has) == 1
    logs = torch.stack(logs)
    assert_close(logits[..., :2], logs[..., :2].mean(0), CONTRACT)
    alone = logs[has.index(True)][..., 2]
    assert_close(logits[..., 2], alone + torch.tensor(1 / len(has)).log(), CONTRACT)
    assert (logits[..., 3:] < logits[..., :3].amin() - 100).all()  # no block has these


def test_blocks_without_rows_are_refused():
    with pytest.raises(ConfigError, match="max_rows=0"):
        BlockEnsemble(None, 0)
