"""The curve of scores against core-hours, and the law that carries it on."""

import math

import numpy as np
import pytest

from experiments.pretrain_default import curve, legs
from experiments.pretrain_default.legs import Leg

HOURS = np.array([0.3, 0.7, 1.3, 2.5, 5.0, 9.0])


@pytest.mark.parametrize(("a", "b", "c"), [(0.95, 0.03, 0.5), (0.7, -0.1, 0.3), (0.9, 0.2, 1.5)])
def test_a_law_is_found_again(a, b, c):
    law = curve.fit(HOURS, a - b * HOURS**-c)
    np.testing.assert_allclose((law.a, law.b, law.c), (a, b, c), rtol=1e-3)
    ahead = np.array([20.0, 90.0])
    np.testing.assert_allclose(law.at(ahead), a - b * ahead**-c, rtol=1e-4)


def test_errors_are_those_of_refitting_noisy_scores():
    """Against a simulation: standard error of the law at twice the hours."""
    rng = np.random.default_rng(0)
    hours = np.geomspace(0.3, 10, 30)
    exact, ahead = 0.95 - 0.03 * hours**-0.5, np.array([20.0])
    laws = [curve.fit(hours, exact + rng.normal(scale=1e-4, size=30)) for _ in range(100)]
    spread = np.std([law.at(ahead)[0] for law in laws])
    claimed = np.mean([law.error(ahead)[0] for law in laws])
    assert claimed == pytest.approx(spread, rel=0.25)


def test_no_law_leads_to_scores_that_do_not_exist(tmp_path, capsys):
    """Straight lines in the logarithm of hours: a limit of the loss below 0, of ROC-AUC above 1."""
    noise = 1e-3 * np.array([1, -1, 0, 1, -1, 0, 1])
    hours = 0.3 * np.arange(1, 8) + 0.05
    lines = [
        (0.6 - 0.2 * np.log(h) + e, 0.9 + 0.03 * np.log(h) + e)
        for h, e in zip(hours, noise, strict=True)
    ]
    assert curve.main([*log(tmp_path, lines)]) == 0
    printed = capsys.readouterr().out
    limits = [
        float(line.split(": ")[1].split()[0]) for line in printed.splitlines() if "h^" in line
    ]
    assert len(limits) == 2
    assert limits[0] <= 1
    assert limits[1] >= 0


def log(tmp_path, scores):
    for loss, auc in scores:
        leg = Leg("a processor", 20.0, 0.3, 0.05, 1000, 150, 9000, 100_000, loss, 0.75, auc)
        legs.append(leg, tmp_path)
    return str(tmp_path), "--output", str(tmp_path / "curve.png")


def test_the_command_draws_and_says_what_more_hours_would_bring(tmp_path, capsys):
    hours = 0.3 * np.arange(1, 8) + 0.05
    scores = [(0.7 + 0.1 * h**-0.5, 0.93 - 0.02 * h**-0.5) for h in hours]
    scores[2] = (math.nan, math.nan)
    assert curve.main([*log(tmp_path, scores)]) == 0
    printed = capsys.readouterr().out
    assert f"{10 * hours[-1]:8.1f} core-hours" in printed
    assert f"{0.93 - 0.02 * (10 * hours[-1]) ** -0.5:.4f}" in printed
    assert "tables: 0.9300 - 0.0200 h^-0.50 over 6 legs" in printed
    assert "tables: 0.7000 + 0.1000 h^-0.50 over 6 legs" in printed
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_without_development_tables_there_is_the_loss_alone(tmp_path, capsys):
    scores = [(0.7 + 0.1 * h**-0.5, math.nan) for h in range(1, 6)]
    assert curve.main([*log(tmp_path, scores)]) == 0
    assert curve.SCORES["development_roc_auc"] not in capsys.readouterr().out


def test_three_legs_are_too_few(tmp_path, capsys):
    assert curve.main([*log(tmp_path, [(0.8, 0.9), (0.75, 0.91), (0.74, 0.92)])]) == 2
    error = capsys.readouterr().err
    assert "3 points: a curve needs at least 4" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "curve.png").exists()
    assert curve.main([str(tmp_path / "nowhere")]) == 2
