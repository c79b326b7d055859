"""The table and the curves of a comparison as data, with what made them: `results.json`."""

import math
from dataclasses import asdict
from typing import Any

from ...provenance import provenance
from ...report.comparison.contents import Comparison, Configuration, Curve, GradientProfile, Name, RateCurve


def results(page: Comparison) -> dict[str, Any]:
    """Plain values; null stands for numbers that are not finite, which JSON does not have."""
    return {
        "title": page.title,
        "created": page.created,
        **provenance(),
        "conclusion": [page.conclusion.found, page.conclusion.paper],
        "chance_nll_nats": page.unigram_loss_nats,
        "arms": [_configuration(configuration) for configuration in page.configurations],
        "validation": [_curve(curve) for curve in page.valid_curves],
        "learning_rate_sensitivity": _sensitivities(page),
        **_tuning(page),
        "gradient_norm_at_update_0": [_profile(profile) for profile in page.gradient_profiles],
        "what": dict(page.what),
        "formulas": dict(page.formulas),
        "commands": list(page.commands),
        "environment": dict(page.environment),
    }


def _name(name: Name) -> dict[str, str]:
    return {"label": str(name), "placement": name.group, "variant": name.variant}


def _configuration(configuration: Configuration) -> dict[str, Any]:
    return _name(configuration.name) | {
        "warmup_updates": configuration.warmup_updates,
        "peak_lr": configuration.peak_lr,
        "optimizer": configuration.optimizer,
        "seeds": [_plain(asdict(seed)) for seed in configuration.seeds],
        "verdict": configuration.verdict.text,
    }


def _curve(curve: Curve) -> dict[str, Any]:
    return _name(curve.name) | {"updates": list(curve.updates), "seeds_values": _plain(curve.seeds_values)}


def _sensitivities(page: Comparison) -> dict[str, Any]:
    """Final losses over the rate, in nats per target token, and the sensitivity to it over the rates that all have."""
    return {
        "source": "Wortsman et al. 2023, arXiv:2309.14322",
        "unit": "nats per target token",
        "rates": list(page.shared_lrs),
        "arms": [_rate_curve(curve) for curve in page.rate_curves],
    }


def _tuning(page: Comparison) -> dict[str, Any]:
    """Where peak rates were searched, what won of how many trials, and the losses of the trials over the rate."""
    if not page.tuned:
        return {}
    arms = [{**_name(arm.name), **_plain(asdict(arm) | {"name": str(arm.name)})} for arm in page.tuned]
    return {
        "tuning": {
            "unit": "nats per target token",
            "arms": arms,
            "trials": [_rate_curve(curve) for curve in page.trial_curves],
        }
    }


def _rate_curve(curve: RateCurve) -> dict[str, Any]:
    names = {"name": str(curve.name), "configurations": [str(name) for name in curve.configurations]}
    return {**_name(curve.name), **_plain(asdict(curve) | names)}


def _profile(profile: GradientProfile) -> dict[str, Any]:
    blocks = [str(block) for block in profile.blocks]
    return _name(profile.name) | {
        "labels": [str(name) for name in profile.names],
        "blocks": blocks,
        "seeds_norms": _plain(profile.seeds_norms),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
