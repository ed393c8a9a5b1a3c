"""The numbers of a study's claims, and the families of tests that are corrected together."""

from dataclasses import dataclass

import numpy as np

from analysis.findings.results import Results
from analysis.findings.study_file import Q_PRIMARY, Row, Study
from analysis.statistics.inference import false_discovery
from common.user_error import UserError

Values = dict[str, str]


@dataclass(frozen=True)
class Mean:
    """A mean over trainings, or a difference of two: a row of several stages, and the column."""

    row: Row
    column: str

    @property
    def key(self) -> tuple[object, ...]:
        """What tells it from other means; conditions are the same in any order."""
        return self.row.stage, self.row.minus, self.row.file, *sorted(self.row.where.items()), self.column


def rows_of_claims(study: Study, results: Results) -> list[dict[str, Values]]:
    """Return the rows of each claim by name.

    q corrects p for every mean over trainings of the page, said or not: each outcome that the tables of a claim's or
    a forest plot's stages hold (Benjamini and Hochberg 1995). q_primary corrects it for the primary outcomes alone.
    """
    rows = [
        {name: results.values(row, claim.columns(name)) for name, row in claim.rows.items()} for claim in study.claims
    ]
    q = _corrected({mean.key: _p(mean, results) for mean in means_of(study, results)})
    primary = {(mean := Mean(outcome.row, outcome.column)).key: _p(mean, results) for outcome in study.primary}
    q_primary = _corrected(primary)
    for claim, values in zip(study.claims, rows, strict=True):
        for name, row in claim.rows.items():
            for column in claim.columns(name) if row.several else ["value"]:
                key, before = Mean(row, column).key, f"{column}." if row.several else ""
                if row.several and key in q:
                    values[name][f"{before}q"] = repr(q[key])
                if key in q_primary:
                    values[name][f"{before}{Q_PRIMARY}"] = repr(q_primary[key])
    return rows


def means_of(study: Study, results: Results) -> list[Mean]:
    """Return every mean over trainings of a page, said or not."""
    columns = [
        (row, column)
        for claim in study.claims
        for name, row in claim.rows.items()
        if row.several
        for column in claim.tested(name)
    ]
    columns += [(row, "value") for forest in study.forests for row in forest.rows]
    means = [Mean(other, column) for row, column in columns for other in (*results.family(row), row)]
    return list({mean.key: mean for mean in means}.values())


def _corrected(p: dict[tuple[object, ...], float]) -> dict[tuple[object, ...], float]:
    """Return p-values corrected together, by what they are of."""
    q = false_discovery(np.array(list(p.values())))
    return dict(zip(p, map(float, q), strict=True))


def _p(mean: Mean, results: Results) -> float:
    """Return the p-value of a mean, or of the row of one stage; NaN if not all trainings have the outcome."""
    if not mean.row.several:
        return float(results.values(mean.row).get("p") or np.nan)
    try:
        return float(results.values(mean.row, [mean.column])[f"{mean.column}.p"])
    except UserError:
        return np.nan
