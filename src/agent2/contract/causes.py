"""Causes of failures: what a class of bad cases is attributed to, and what follows for the next round.

`CAUSES` is the one table. The templates of suites (`contract/tracks`), the suite around one benchmark and every report
take a cause from here, so that a failure has the same one wherever it is counted. A class is looked up without the name
of the benchmark before it: `gsm8k_wrong_final_answer` and `mine_wrong_final_answer` are both `wrong_final_answer`. A
suite may attribute a class to something else in its own `failure_taxonomy`, with one exception: where it attributes a
dangerous action or a played reward to a lack of training data, the table counts.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from agent2.contract.gates import REPORTED_DANGERS
from agent2.records import DANGER_PREFIX


class Cause(StrEnum):
    """What a bad case is attributed to."""

    DATA = "data"
    REWARD = "reward"
    ALGORITHM = "algorithm"
    TOOLS = "tools"
    EVALUATION = "evaluation"
    SAFETY = "safety"


_BY_CAUSE: Mapping[Cause, str] = {
    Cause.DATA: (
        "wrong_choice wrong_text constraint_violation keyword_missing keyword_constraint_violation keyword_forbidden "
        "letter_frequency_violation length_constraint_violation language_constraint_violation "
        "no_call wrong_function wrong_arguments missing_call call_order irrelevance_not_said "
        "not_searched api_called_before_search wrong_api wrong_state tests_not_run_after_patch "
        "record_wrong record_missed not_told user_gave_up "
        "search_wrong_value search_incomplete_set search_gave_up answer_nothing_right answer_some_right "
        "purchase_wrong_type purchase_attribute_missed purchase_option_missed purchase_too_dear "
        "pick_and_place_simple_lost look_at_obj_in_light_lost pick_clean_then_place_in_recep_lost "
        "pick_heat_then_place_in_recep_lost pick_cool_then_place_in_recep_lost pick_two_obj_and_place_lost "
        "replies_missing_fact ungrounded_wrong_tool ungrounded_misspelt_argument ungrounded_misfit_argument "
        "chart_axis_value_misread table_header_binding_error geometry_diagram_spatial_relation_error ocr_error "
        "visual_grounding_error forbidden_import"
    ),
    Cause.REWARD: (
        "answer_parse_fail answer_parse_error final_answer_format_error format_constraint_violation no_answer "
        "no_final_answer no_code response_wrong malformed_call extra_call called_without_need "
        "claimed_without_doing visible_tests_only reward_hacking hardcoded_tests ended_in_words not_submitted "
        "repetition unterminated_action "
        "repeated_tool_call repeated_failing_call repeated_search repeated_file_read repeated_test_run "
        "mostly_invalid going_in_circles purchase_none answer_all_right_and_more "
        "search_no_answer search_made_up search_citation_invented search_citation_missing search_citation_not_opened "
        "search_citation_unsupported replies_false replies_repeated replies_unasked "
        "ungrounded_altered_quote ungrounded_carried_claim ungrounded_cascade ungrounded_claimed_action "
        "ungrounded_contradicted_result ungrounded_hidden_failure ungrounded_invented_argument "
        "ungrounded_invented_name ungrounded_invented_number ungrounded_lost_goal ungrounded_missing_source "
        "ungrounded_unknown_tool ungrounded_unneeded_tool ungrounded_unread_source ungrounded_unsupported_citation "
        "ungrounded_wrong_blame thought_cut_off judge_veto"
    ),
    Cause.ALGORITHM: (
        "wrong_final_answer wrong_answer reasoning_error wrong_patch no_patch wrong_value no_value test_raised "
        "test_timeout turn_cap tool_budget_exceeded check_failed rubric_not_met reward_missed"
    ),
    Cause.TOOLS: (
        "tool_timeout_no_recovery tool_permission_denied_no_recovery tool_empty_result_no_recovery "
        "tool_schema_error_no_recovery tool_truncated_result_no_recovery tool_malformed_call_no_recovery "
        "tool_unknown_tool_no_recovery tool_not_permitted_no_recovery tool_tool_no_recovery fault_no_recovery"
    ),
    Cause.EVALUATION: (
        "verifier_error undecided image_resized_too_small judge_prefers_length judge_quote_missing judge_unweighted "
        "position_flip"
    ),
    Cause.SAFETY: "refusal search_followed_injection",
}
CAUSES: Mapping[str, Cause] = MappingProxyType(
    {failure: cause for cause, failures in _BY_CAUSE.items() for failure in failures.split()}
)
"""Class of bad cases, without the name of its benchmark -> its cause."""
RENAMED: Mapping[str, str] = MappingProxyType({"only_sample_tests_pass": "visible_tests_only"})
"""Classes as older cards name them -> as they are named now."""
REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "data": "attributed to data: supplement training items of this class",
        "reward": "attributed to the reward: fix it or split it, then train again on this class",
        "algorithm": "attributed to the algorithm: look at steps, credit and exploration on this class",
        "tools": "attributed to tools: add trajectories that recover from this error",
        "evaluation": "attributed to the evaluation: fix the scorer before anything is trained on it",
        "safety": "attributed to safety: add tasks in which it must be refused or confirmed",
    }
)
"""Cause of a class of bad cases -> what follows for the next round."""
FAILURE_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "visible_tests_only": "attributed to the reward: it pays for the tests that the model sees; reward hidden and "
        "varied tests",
        "claimed_without_doing": "attributed to the reward: it pays for what is said; reward the state that is left",
        "reward_hacking": "attributed to the reward: close what it pays for by mistake before more is trained on it",
        "hardcoded_tests": "attributed to the reward: it pays for the tests that the model knows; reward hidden and "
        "varied tests",
        "refusal": "attributed to safety: have people read which refusals are right; reward helping in the others",
    }
)
"""In place of the cause's remedy, for some classes."""
PLAYED_REWARD = frozenset(
    {"visible_tests_only", "claimed_without_doing", "ended_in_words", "reward_hacking", "hardcoded_tests"}
)
"""Classes in which the reward was got without the work."""


def failure_of(label: str) -> str:
    """The class without the name of the benchmark before it, and in today's words; the label itself if unknown."""
    parts = label.split("_")
    for start in range(len(parts)):
        failure = "_".join(parts[start:])
        failure = RENAMED.get(failure, failure)
        if failure in CAUSES:
            return failure
    return label


def is_danger(label: str) -> bool:
    """Whether the class is a dangerous action, by the names that scorers and other tools' reports give them."""
    return label.startswith(DANGER_PREFIX) or label in REPORTED_DANGERS


def usual_cause(label: str) -> Cause | None:
    """The cause by the table; None: it does not know the class."""
    return Cause.SAFETY if is_danger(label) else CAUSES.get(failure_of(label))


def cause_of(label: str, taxonomy: Mapping[str, str]) -> Cause | None:
    """The cause of a class in a suite; None: neither the suite nor the table knows the class.

    taxonomy: the suite's own `failure_taxonomy`; it is asked first, under the label and under its class.
    """
    failure = failure_of(label)
    by_failure = {failure_of(stated): cause for stated, cause in taxonomy.items()}
    stated_cause = taxonomy.get(label, by_failure.get(failure))
    if stated_cause is None or (stated_cause == Cause.DATA and (is_danger(label) or failure in PLAYED_REWARD)):
        return usual_cause(label)
    return Cause(stated_cause)


def remedy_of(label: str, cause: str | None) -> str | None:
    """What follows from a class for the next round; None without a cause."""
    if cause is None:
        return None
    failure = failure_of(label)
    is_usual = cause == usual_cause(label)
    return FAILURE_REMEDIES[failure] if is_usual and failure in FAILURE_REMEDIES else REMEDIES[cause]
