"""What every rule of the linter has, found in a file of its own: a name, reasons, and an error that
was rebuilt.
"""

import importlib
import pkgutil
from collections.abc import Callable

import pytest

from doctor import (
    bugs,
    bugs_blocks,
    bugs_skip_path,
    bugs_starts,
    bugs_values,
    test_advice,
    test_clipping,
    test_contradicts_training,
    test_laws_modes,
    test_laws_movement,
    test_laws_places,
    test_laws_reach,
    test_laws_starts,
    test_laws_targets,
    test_laws_uses,
    test_lint_numbers,
    test_lint_signal,
    test_lint_structure,
    test_nonfinite,
    test_not_misread,
    test_peers,
    test_queries_keys,
    test_reported,
    test_routed,
    test_told,
    test_waves,
)
from normscope.doctor.lint import around, checks, peers, routed, told, tried
from normscope.doctor.lint.linter import RULES
from normscope.doctor.lint.rule import Rule
from prove import test_learning

BUG_FILES = (bugs, bugs_blocks, bugs_values, bugs_skip_path, bugs_starts)
REBUILT = {bug.rule for file in BUG_FILES for bug in file.BUGS.values()}
"""Rules with an error that was made in public, and a twin without it."""
NEED_MORE_THAN_A_MODEL: dict[str, Callable[..., None]] = {
    "checkpoint-tensors": test_lint_structure.test_a_post_ln_checkpoint_in_a_pre_ln_model,
    "untrained-norm": (
        test_lint_structure.test_an_untrained_norm_shows_without_a_word_from_the_loader
    ),
    "query-key-norms": test_queries_keys.test_how_queries_and_keys_are_normed,
    "contradicts-training": (
        test_contradicts_training.test_a_checkpoint_under_the_wrong_flag_is_found
    ),
    "dead-sublayer": test_lint_signal.test_a_branch_without_gradient,
    "nonfinite-weights": test_nonfinite.test_one_entry_is_found_by_name_and_the_structure_is_told,
    "nonfinite-gradient": test_lint_signal.test_gradients_that_overflow,
    "no-gradient": test_not_misread.test_a_norm_that_overwrites_its_input_is_named,
    "saturated-gate": test_lint_signal.test_saturated_gates,
    "weight-decay-on-norms": test_lint_numbers.test_weight_decay_on_norms,
    "optimizer-unlike-others": test_lint_numbers.test_a_block_that_the_optimiser_treats_otherwise,
    "unused-in-optimizer": test_lint_numbers.test_norms_that_no_group_holds,
    "rate-out-of-range": (
        test_advice.test_an_instance_gives_what_its_name_does_and_its_own_rate_is_the_wanted_one
    ),
    **dict.fromkeys(
        (
            "sequences-mixed",
            "misplaced-curve",
            "scores-not-logits",
            "targets-misplaced",
            "norm-without-root",
            "misplaced-positions",
            "altered-stream",
            "drawn-shifts",
            "rounded-gradient",
            "untied-head",
        ),
        test_reported.test_what_was_reported_is_found,
    ),
    "stuck-weights": test_laws_movement.test_two_factors_of_zero_never_move,
    "cut-off-weights": (test_laws_movement.test_a_weight_behind_a_detach_is_used_and_never_trained),
    "rounded-updates": (
        test_laws_movement.test_updates_below_half_the_step_of_bfloat16_leave_gains_at_1
    ),
    "uneven-updates": (test_laws_movement.test_a_block_at_a_hundred_times_the_rate_of_the_others),
    "nonfinite-update": (
        test_laws_movement.test_a_rate_that_makes_the_loss_infinite_is_an_error_unless_it_is_warmed_up
    ),
    "modes-differ": test_laws_modes.test_what_one_mode_leaves_out_is_named,
    "answers-known": (
        test_learning.test_a_model_that_sees_what_it_is_asked_for_is_an_error_that_comes_first
    ),
    "does-not-learn": (
        test_learning.test_a_model_that_hears_no_other_token_does_not_learn_what_two_references_learn
    ),
    "learned-in-training-alone": (
        test_learning.test_what_is_learned_in_training_and_gone_in_evaluation_is_told
    ),
    "learns-at-another-rate": (
        test_learning.test_a_rate_at_which_the_reference_alone_learns_is_told
    ),
    "adapters-open": test_laws_starts.test_adapters_whose_factors_are_both_drawn_start_open,
    "condition-gate-open": test_laws_starts.test_gates_from_a_condition_that_start_open,
    "input-unread": test_laws_uses.test_an_input_that_nothing_reads_is_named,
    "reads-ahead": test_laws_uses.test_a_norm_over_the_sequence_outside_of_blocks_knows_what_comes,
    "order-unread": test_laws_uses.test_positions_that_are_the_same_for_every_token_are_told,
    "places-read": (
        test_laws_places.test_a_mask_that_is_applied_behind_the_softmax_makes_outputs_count_their_place
    ),
    "context-unread": (
        test_laws_places.test_weights_that_multiply_a_querys_own_value_leave_other_tokens_unread
    ),
    "rows-mixed": test_laws_uses.test_a_mean_over_the_batch_lets_sequences_know_each_other,
    "padding-read": test_laws_uses.test_padding_that_a_mean_counts_is_read,
    "capped-logits": test_laws_reach.test_a_cap_of_1_leaves_a_loss_that_no_training_lowers,
    "start-unlike-others": test_peers.test_one_block_that_starts_otherwise_is_told,
    "module-unlike-others": test_peers.test_one_block_with_a_number_a_class_or_a_mode_of_its_own,
    "unnormed-unlike-others": test_peers.test_norms_lost_in_several_blocks_are_told,
    "optimizer-numbers": test_told.test_numbers_of_the_optimiser_that_cannot_be_meant,
    "swamped-gradient": test_told.test_an_epsilon_beside_which_the_gradient_is_nothing,
    "group-rates-apart": test_told.test_a_group_outside_of_blocks_at_another_rate,
    "schedule-fails": test_told.test_a_schedule_that_ends_a_training,
    "warmup-unlike-told": (test_told.test_a_warm_up_of_the_log_that_is_not_the_one_that_was_told),
    "targets-alike": test_laws_targets.test_labels_of_one_class_are_told,
    "padding-in-loss": test_laws_targets.test_padding_that_the_loss_counts_is_told,
    "few-targets": test_laws_targets.test_a_loss_of_one_token_in_a_hundred_is_a_note,
    "experts-without-tokens": test_routed.test_experts_that_a_bias_keeps_all_tokens_from,
    "identical-experts": test_routed.test_experts_that_start_as_one,
    "units-cut-off": test_routed.test_units_that_are_shared_out_or_cut_off,
    "growing-state": test_routed.test_a_state_with_a_factor_above_1,
    "detached-weights": test_routed.test_a_matrix_that_is_detached_where_it_is_read,
    "dropped-products": test_routed.test_a_product_that_nobody_reads,
    "wide-matrices": test_routed.test_parameters_that_a_scheme_for_layers_left_at_n_0_1,
    "adapted-trained": test_routed.test_a_matrix_that_is_trained_beside_its_adapter,
    "key-groups": test_routed.test_groups_that_other_heads_read_or_none,
    **dict.fromkeys(
        (
            "answers-shown",
            "batch-norm-of-tokens",
            "documents-mixed",
            "dropped-logits",
            "hidden-from-one-side",
            "large-dropout",
            "memory-hidden",
            "mirrored-places",
            "muon-over-tables",
            "one-sided-matrices",
            "outputs-alike",
            "own-place-missed",
            "painted-elsewhere",
            "pieces-scattered",
            "positions-alike",
            "positions-too-fast",
            "rates-fall-with-depth",
            "rows-lost-in-training",
            "sequence-cut",
            "softmax-elsewhere",
            "targets-smoothed-away",
            "token-not-read",
            "tokens-alike",
            "tokens-unread",
        ),
        test_waves.test_a_fault_is_told_in_the_right_words_and_its_twin_is_silent,
    ),
    "clip-hides-rate": test_clipping.test_a_clip_a_thousand_times_below_the_gradient,
}
"""Rules whose error stands in a checkpoint, an optimiser or a training, and the test that has it
and its twin.
"""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_rebuilt_error(rule):
    assert rule.id in REBUILT | NEED_MORE_THAN_A_MODEL.keys(), (
        f"no test has an error that {rule.id} must find: add a Bug with rule={rule.id!r}, and the "
        "right model beside it, to tests/doctor/bugs.py, bugs_blocks.py or bugs_skip_path.py "
        "(wiring), bugs_values.py or bugs_starts.py (weights and values); where a model alone does "
        "not show it, write a test and name it here"
    )


def test_what_has_tests_exists():
    assert REBUILT | NEED_MORE_THAN_A_MODEL.keys() <= {rule.id for rule in RULES}


def test_every_rule_of_every_file_is_listed_once():
    files = [
        importlib.import_module(f"{folder.__name__}.{found.name}")
        for folder in (around, checks, peers, routed, told, tried)
        for found in pkgutil.iter_modules(folder.__path__)
    ]
    made = [rule.id for file in files for rule in vars(file).values() if isinstance(rule, Rule)]
    assert sorted(made) == sorted(rule.id for rule in RULES)
    assert len(set(made)) == len(made)
