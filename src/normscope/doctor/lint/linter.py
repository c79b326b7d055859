"""All rules of the linter in one order: asked in turn, but for those that a project has silenced in pyproject.toml."""

import difflib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ...limits.reading import read_toml
from ..result import AskedRule, Finding
from .checks import (
    attention,
    gains,
    gates,
    initialisation,
    likes,
    masks,
    norm_uses,
    norms,
    optimizer,
    placements,
    repeats,
    schemes,
    signal,
    steps,
    streams,
    sums,
    training,
    wiring,
)
from .patient import Patient
from .rule import Rule

RULES: tuple[Rule, ...] = (
    sums.lost_residual,
    sums.unused_parameters,
    repeats.detached_skips,
    repeats.shared_blocks,
    repeats.altered_stream,
    repeats.depth_unlike_configuration,
    repeats.untied_head,
    repeats.positions_again,
    repeats.random_in_evaluation,
    norms.missing_final_norm,
    norm_uses.double_final_norm,
    norm_uses.shared_norm,
    norm_uses.norm_over_others,
    norm_uses.norm_without_root,
    norm_uses.norms_swapped,
    norms.unnormed_memory,
    norms.no_norm,
    placements.mixed_placements,
    placements.flag_contradicts,
    norms.query_key_norms,
    attention.softmax_axis,
    masks.attention_mask,
    masks.sequences_mixed,
    masks.misplaced_positions,
    training.checkpoint_tensors,
    training.untrained_norm,
    training.contradicts_training,
    streams.mixing_one_sided,
    streams.branches_halved,
    streams.copies_for_ever,
    streams.streams_left_out,
    streams.weights_drawn_wide,
    wiring.misplaced_step,
    steps.misplaced_curve,
    placements.wrong_constants,
    wiring.unknown_wiring,
    initialisation.nonfinite_weights,
    initialisation.unlike_placement,
    initialisation.identical_blocks,
    initialisation.constant_weights,
    initialisation.drawn_shifts,
    schemes.initial_scheme,
    gains.gain_start,
    gains.gain_convention,
    likes.uneven_blocks,
    attention.attention_saturated,
    attention.attention_scale,
    likes.frozen_unlike_others,
    likes.precision_unlike_others,
    likes.rounded_gradient,
    signal.dead_sublayers,
    signal.nonfinite_gradients,
    signal.no_gradient,
    streams.amplified_stream,
    streams.faded_stream,
    streams.drifting_stream,
    signal.embedding_swamps_blocks,
    signal.embedding_too_large,
    gains.embedding_scaled_twice,
    gains.unequal_tables,
    gates.dead_gates,
    gates.gate_start,
    gates.saturated_gates,
    gates.flat_gates,
    steps.scores_not_logits,
    steps.targets_misplaced,
    signal.loss_far_from_chance,
    norms.norm_epsilon,
    optimizer.decayed_norms,
    optimizer.unheld_norms,
    likes.optimizer_unlike_others,
    optimizer.clip_hides_rate,
    optimizer.rate_out_of_range,
)
"""In the order in which findings of one severity are listed: first the wiring, then weights, then what they
compute, then the optimiser."""


def reasons() -> dict[str, str]:
    """Why each rule's findings matter, by its id."""
    return {rule.id: rule.explanation for rule in RULES}


def lint(patient: Patient, silenced: Collection[str] = ()) -> tuple[Finding, ...]:
    """What the rules find, the worst first, and of equals in the order of `RULES`.

    silenced: ids of rules that are not asked; raises ValueError on one that does not exist.
    """
    asked = {rule.id for rule in asked_rules(patient, silenced) if rule.asked}
    found = [finding for rule in RULES if rule.id in asked for finding in rule.check(patient)]
    return tuple(sorted(found, key=lambda finding: -finding.severity.rank))


def asked_rules(patient: Patient, silenced: Collection[str] = ()) -> tuple[AskedRule, ...]:
    """Every rule, in the order of `RULES`: whether it can be asked about a patient, and why not.

    silenced: ids of rules that are not asked; raises ValueError on one that does not exist.
    """
    check_silenced(silenced)
    reasons = {rule.id: [_SILENCED] if rule.id in silenced else rule.lacking(patient) for rule in RULES}
    return tuple(AskedRule(id=id, asked=not why, reason=" and ".join(why)) for id, why in reasons.items())


_SILENCED = "it was silenced"


def check_silenced(silenced: Collection[str]) -> None:
    """Raises ValueError on an id that no rule has, naming the nearest that one has, if any is near."""
    known = [rule.id for rule in RULES]
    for name in silenced:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else "."
            raise ValueError(f"no rule is called {name!r}{meant} Known are {', '.join(sorted(known))}")


def silenced_in(start: Path) -> tuple[str, ...]:
    """Ids in `silence` under [tool.normscope.doctor] of the nearest pyproject.toml, from `start` upwards; () without.

    Raises ValueError with file and key where that is no list of rules.
    """
    path = start.resolve()
    for folder in (path, *path.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            return _silenced(file)
    return ()


def _silenced(file: Path) -> tuple[str, ...]:
    try:
        table: Any = read_toml(file)
    except ValueError as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from error
    at = ""
    for key in ("tool", "normscope", "doctor"):
        at = f"{at}.{key}" if at else key
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ValueError(f"{file}: {at} must be a table, got {table!r}")
    unknown = [key for key in table if key != "silence"]
    if unknown:
        raise ValueError(f"{file}: unknown key {at}.{unknown[0]}; allowed is silence")
    ids = table.get("silence", [])
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise ValueError(f"{file}: {at}.silence must be a list of rule ids, got {ids!r}")
    try:
        check_silenced(ids)
    except ValueError as error:
        raise ValueError(f"{file}: {at}.silence: {error}") from error
    return tuple(ids)
