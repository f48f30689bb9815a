"""Summary sentences of the study, each shown only while the verdicts that it rests on hold."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from experiments.study.claims import VERDICTS, Verdict
from experiments.study.verdict_table import POOLED
from tabicl_linear.errors import ConfigError

FINDINGS = Path(__file__).parent / "findings.yaml"


class Finding(NamedTuple):
    """A sentence of the first page.

    Attributes:
        says: The sentence; a claim's name in braces is replaced by its estimate.
        rests_on: For each claim that it rests on, the verdict that makes it true.
    """

    says: str
    rests_on: Mapping[str, str]

    def holds(self, verdicts: Mapping[str, Verdict]) -> bool:
        """Whether all claims have the verdicts that it rests on."""
        return all(verdicts[claim].verdict == verdict for claim, verdict in self.rests_on.items())

    def text(self, verdicts: Mapping[str, Verdict]) -> str:
        """The sentence with numbers; marked if a verdict depends on pooling over all arms."""
        estimates = {name: verdicts[name].estimate for name in self.rests_on}
        numbers = {name: f"{x.value:.3f}" for name, x in estimates.items() if x is not None}
        text = self.says.format_map(numbers)
        hangs = any(verdicts[name].hangs_on_pool for name in self.rests_on)
        return f"{text} {POOLED}" if hangs else text


def read(claims: Sequence[str], path: Path = FINDINGS) -> list[Finding]:
    """The findings of a file.

    Args:
        claims: Names of all claims.
        path: Path of the file.

    Raises:
        ConfigError: A finding rests on a claim or a verdict that does not exist.
    """
    findings = [Finding(**entry) for entry in yaml.safe_load(path.read_text(encoding="utf-8"))]
    for finding in findings:
        for claim, verdict in finding.rests_on.items():
            if claim not in claims or verdict not in VERDICTS:
                raise ConfigError(
                    f"{path.name}: a finding rests on {claim}: {verdict}; give a claim of "
                    f"claims.csv and one of {', '.join(VERDICTS)}."
                )
    return findings


def in_short(verdicts: Sequence[Verdict]) -> str:
    """Return the findings that hold as a markdown list; empty if none does."""
    by_claim = {x.claim.name: x for x in verdicts}
    shown = [x.text(by_claim) for x in read([*by_claim]) if x.holds(by_claim)]
    return "In short:\n\n" + "\n".join(f"- {text}" for text in shown) if shown else ""
