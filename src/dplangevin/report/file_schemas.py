"""JSON Schemas of all files that the library writes, for editors and for programs in other languages.

Those of files that it reads are generated from the readers. They accept every file that loads; a file that they accept
may still be refused, since digests, theorems and shapes of lists are checked in code. docs/assets/schemas holds their
text; `python -m dplangevin.report.file_schemas FOLDER` writes it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dplangevin import _plain
from dplangevin.accounting import certificate
from dplangevin.accounting.plan import PLAN_FORMAT
from dplangevin.accounting.registry import accountable_mechanisms, option_reader_for, spec_readers
from dplangevin.accounting.serialize import GUARANTEE_FORMAT
from dplangevin.estimators import scorecard
from dplangevin.estimators.model_file import MODEL_FORMAT
from dplangevin.ledger.ledger import EXPORT_VERSION
from dplangevin.mechanisms.run_state import STATE_FORMAT
from dplangevin.report.release import VERSION as REPORT_VERSION
from dplangevin.schema.schema import build_json_schema

_TEXT, _NUMBER, _BOOLEAN = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_OBJECT: dict[str, Any] = {"type": "object"}
_NULLABLE_NUMBER, _NULLABLE_TEXT = {"type": ["number", "null"]}, {"type": ["string", "null"]}
_INFINITE = {"_infinite$": {"const": True}}
"""An infinite number is null, beside its name with this ending."""


def _list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _describe(fields: dict[str, Any], **optional: Any) -> dict[str, Any]:
    """Return the schema of an object with these fields, and markers of infinite numbers."""
    return {
        "type": "object",
        "properties": fields | optional,
        "required": list(fields),
        "patternProperties": _INFINITE,
        "additionalProperties": False,
    }


_CONDITION = _describe({"kind": _TEXT, "text": _TEXT})
_STATED_GUARANTEE = _describe(
    {
        "epsilon": {"anyOf": [_NULLABLE_NUMBER, {"const": "inf"}]}, "delta": _NUMBER, "kind": _TEXT,
        "mu": _NULLABLE_NUMBER, "adjacency": _TEXT, "release": _TEXT, "theorem": _TEXT, "reference": _TEXT,
        "origin": _TEXT, "proofs": _list_of(_TEXT), "conditions": _list_of(_CONDITION),
        "assumptions": _list_of(_TEXT), "arithmetic": {"enum": ["real", "discrete-grid"]}, "extra_delta": _NUMBER,
    }
)  # fmt: skip
_COUNT_MECHANISM = _describe(
    {
        "k": _COUNT, "changed_counts": _COUNT, "sensitivity": _NUMBER, "p": {"anyOf": [_NUMBER, {"const": "inf"}]},
        "sigma": _NUMBER, "grid": _NULLABLE_NUMBER, "expected_maximum_error": _NUMBER, "maximum_error_95": _NUMBER,
        "margin_95": _NUMBER, "guarantee": _STATED_GUARANTEE,
    }
)  # fmt: skip
_GROUP_MECHANISM = _describe(
    {"sigma": _NUMBER, "threshold": _NUMBER, "margin_95": _NUMBER, "guarantee": _STATED_GUARANTEE}
)
_STEPS_ROW = {"steps": _COUNT} | dict.fromkeys(("epsilon", "composition", "lower_bound"), _NULLABLE_NUMBER)
_REPORT = {
    "format": {"const": "dplangevin-report"}, "version": {"const": REPORT_VERSION}, "library": _TEXT,
    "created": _TEXT, "what": _TEXT, "guarantee": _STATED_GUARANTEE, "odds_factor": _NULLABLE_NUMBER,
    "attacks": _list_of(_describe({"false_positive_rate": _NUMBER, "true_positive_rate": _NUMBER})),
    "advantage": _NUMBER, "composition_epsilon": _NULLABLE_NUMBER, "certificate": {"type": ["object", "null"]},
    "independent_check": _TEXT, "lower_bound_epsilon": _NULLABLE_NUMBER, "seeded": {"type": ["boolean", "null"]},
    "steps": _NULLABLE_NUMBER, "release_hash": _NULLABLE_TEXT, "ledger_head": _NULLABLE_TEXT,
    "rows_per_person": _COUNT, "settings": _OBJECT, "data_bounds": _OBJECT,
    "tradeoff": _describe({"false_alarms": _list_of(_NUMBER), "misses": _list_of(_NUMBER)}),
    "epsilon_against_steps": _list_of(_describe(_STEPS_ROW)), "ledger": {"type": ["object", "null"]},
}  # fmt: skip
_SCORECARD = {
    "format": {"const": scorecard.FORMAT}, "version": {"const": scorecard.FORMAT_VERSION}, "library": _TEXT,
    "estimator": _TEXT, "columns": _list_of(_TEXT), "constant": _list_of(_NUMBER), "link": _OBJECT,
    "guarantee": _STATED_GUARANTEE,
}  # fmt: skip
_SUMMARY_ROW = {
    "column": _TEXT, "group": _TEXT, "statistic": _TEXT, "value": _NUMBER, "low_95": _NUMBER, "high_95": _NUMBER,
}  # fmt: skip

_HEAD = {"format": _TEXT, "version": _COUNT, "library": _TEXT, "created": _TEXT}
_RELEASE = _describe(
    {
        "theorem": _TEXT, "constants": {"type": ["object", "null"]}, "spec": _OBJECT, "group": _COUNT,
        "count": _NUMBER,
    }
)  # fmt: skip
_CERTIFICATE = {
    "format": {"const": certificate.FORMAT}, "version": {"const": certificate.VERSION}, "adjacency": _TEXT,
    "rows_per_person": _COUNT, "epsilon": _NUMBER, "delta": _NUMBER, "extra_delta": _NUMBER,
    "parts": _list_of(_OBJECT), "releases": _list_of(_RELEASE),
}  # fmt: skip
_LEDGER_ENTRY = {
    "sequence": _COUNT, "part": _NULLABLE_TEXT, "label": _TEXT, "created": _TEXT, "theorem": _TEXT,
    "guarantee": GUARANTEE_FORMAT.to_json_schema(), "plan": {"type": ["object", "null"]}, "library": _TEXT,
    "release_hash": _NULLABLE_TEXT, "released": _NULLABLE_TEXT, "head": _TEXT,
}  # fmt: skip
_BUDGET = {
    "name": _TEXT, "epsilon": _NUMBER, "delta": _NUMBER, "adjacency": _TEXT, "max_rows_per_person": _COUNT,
    "strict": _BOOLEAN, "expects": _TEXT, "delta_share": _NUMBER, "pure_reserve": _NUMBER,
    "fixed_cost_entries": _COUNT, "created": _TEXT, "parts": _list_of(_TEXT), "head": _TEXT,
    "entries": _list_of(_describe(_LEDGER_ENTRY)),
}  # fmt: skip
_LEDGER = {
    "format": {"const": "dplangevin-ledger"}, "version": {"const": EXPORT_VERSION}, "library": _TEXT,
    "datasets": _list_of(_describe(_BUDGET)),
}  # fmt: skip
_REGION = _HEAD | {
    "format": {"const": "dplangevin-region"}, "model": _TEXT, "objective": _TEXT, "route": {"const": "region"},
    "thresholds": _list_of(_NUMBER), "models": _COUNT, "certified_points": _COUNT, "unidentified_directions": _COUNT,
    "gap_bound": _NULLABLE_NUMBER, "min_threshold": _NUMBER, "guarantee": _STATED_GUARANTEE,
    "ledger_head": _NULLABLE_TEXT, "inputs": _TEXT, "multiplicity": _OBJECT, "applicants": _list_of(_OBJECT),
}  # fmt: skip
_HISTOGRAM = _describe({"edges": _list_of(_NUMBER), "counts": _list_of(_COUNT)})
_RASHOMON = _HEAD | {
    "format": {"const": "dplangevin-rashomon"}, "model": _TEXT, "route": _TEXT, "tier": _NULLABLE_TEXT,
    "threshold": _NUMBER, "models": _COUNT, "inverse_temperature": _NULLABLE_NUMBER,
    "hit_probability": _NUMBER, "hit_threshold": _NULLABLE_NUMBER, "hit_bound": _TEXT, "advice": _TEXT,
    "guarantee": _STATED_GUARANTEE, "ledger_head": _NULLABLE_TEXT, "inputs": _TEXT, "multiplicity": _OBJECT,
    "scores": _HISTOGRAM, "widths": _HISTOGRAM, "changed": _list_of(_OBJECT),
}  # fmt: skip
_ACCOUNT = {
    name: part for name, part in _STATED_GUARANTEE["properties"].items() if name not in ("epsilon", "delta")
} | {
    "epsilon": _NULLABLE_NUMBER, "delta": _NULLABLE_NUMBER, "composition_epsilon": _NULLABLE_NUMBER,
    "lower_bound_epsilon": _NULLABLE_NUMBER,
}  # fmt: skip


_ERROR_RATES = _list_of(_list_of(_NUMBER))
_CURVES = _describe({"claimed": _ERROR_RATES, "measured": _ERROR_RATES})
_AUDIT = _describe(
    {
        "epsilon_lower": _NULLABLE_NUMBER, "mu_lower": _NULLABLE_NUMBER, "delta": _NUMBER, "confidence": _NUMBER,
        "runs": _COUNT, "refuted": _BOOLEAN, "method": _TEXT, "canary": _NULLABLE_TEXT,
        "claimed": {"type": ["object", "null"]}, "exact_ratio": _NULLABLE_NUMBER,
        "tested": _describe({"false_positive_rate": _NUMBER, "true_positive_rate": _NUMBER}),
    }
)  # fmt: skip


def _calibrated_names() -> list[str]:
    """Return the parameters that `calibrate` finds for the mechanisms that it knows."""
    targets = [option_reader_for(name)[1] for name in accountable_mechanisms()]
    return sorted({target.name for target in targets if target is not None})


def file_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema, draft 2020-12, of each kind of file by its name.

    Examples
    --------
    >>> sorted(file_schemas())
    ['account', 'audit', 'certificate', 'counts', 'guarantee', 'ledger', 'model', 'plan', 'rashomon', 'region',
     'report', 'schema', 'scorecard', 'state', 'summary']
    """
    plan = PLAN_FORMAT.to_json_schema()
    types = {"properties": {"type": {"enum": sorted(spec_readers())}}, "required": ["type"]}
    plan["properties"]["spec"] = {**_OBJECT, **types}
    columns = {"table": _list_of(_TEXT), "cell": _list_of(_TEXT), "count": _list_of(_NUMBER)}
    counts = {
        "columns": _describe(columns | {"noise_margin_95": _list_of(_NUMBER)}),
        "mechanism": {"anyOf": [_COUNT_MECHANISM, _GROUP_MECHANISM]}, "seeded": _BOOLEAN, "processed": _list_of(_TEXT),
    }  # fmt: skip
    summary = {"rows": _list_of(_describe(_SUMMARY_ROW)), "mechanism": _OBJECT, "seeded": _BOOLEAN}
    of_models = {"shapes": _list_of(_OBJECT), "stability": _OBJECT, "signed": _OBJECT, "signature": _OBJECT}
    terms = {"classes": _list_of({}), "weights": _list_of({}), "terms": _list_of(_OBJECT)}
    divergence = _describe({"order": _NUMBER, "divergence": _NULLABLE_NUMBER})
    parameters = dict.fromkeys(
        ("steps", "noise_std", "noise_multiplier", *_calibrated_names()), _NULLABLE_NUMBER
    )
    written = {
        "account": ("Answer of the accountant", _describe(_ACCOUNT, rdp=_list_of(divergence), **parameters)),
        "audit": (
            "Audit of a mechanism",
            _describe(
                {
                    "audit": _AUDIT,
                    "trade_off_curve": _describe({"claimed": _ERROR_RATES, "measured": _ERROR_RATES}),
                }
            ),
        ),
        "certificate": ("Certificate of a guarantee", _describe(_CERTIFICATE)),
        "ledger": ("Exported ledger", _describe(_LEDGER)),
        "rashomon": ("Report on draws of good models", _describe(_RASHOMON)),
        "region": ("Report on a region of good models", _describe(_REGION)),
        "counts": ("Counts", _describe(counts)),
        "report": ("Privacy report", _describe(_REPORT, **of_models)),
        "scorecard": ("Scorecard of a model", _describe(_SCORECARD, **terms)),
        "summary": ("Sums, means and quantiles", _describe(summary)),
    }
    head = {"$schema": _plain.JSON_SCHEMA_DRAFT}
    return {
        "guarantee": GUARANTEE_FORMAT.to_json_schema(),
        "model": MODEL_FORMAT.to_json_schema(),
        "plan": plan,
        "schema": build_json_schema(),
        "state": STATE_FORMAT.to_json_schema(),
        **{name: {**head, "title": title, **content} for name, (title, content) in written.items()},
    }


if __name__ == "__main__":
    for kind, description in file_schemas().items():
        Path(sys.argv[1], f"{kind}.json").write_text(_plain.format_json(description), encoding="utf-8")
