"""Scores in tool worlds: what was called, with what, in which order, and what state it left.

`FunctionCallScorer` keeps two verdicts apart: *executable* (the right functions gave the expected results; the
value) and *AST match* (names and arguments as written; the view `ast_match`). `ApiCallScorer` asks for the right
API, found by a search before it was called, and for the state it should leave. `ResolvedScorer` runs hidden tests on
the final files of a repository: its value is 1.0 only if all pass, those of the broken function and those of the
others; whether the model submitted, and what the visible tests say, are views and labels. A dangerous action does not
change the value; it is counted (`safety_violations`), so that a gate can refuse it. `TrajectoryMatchScorer` holds the
calls against a reference trajectory.

These look at the state of the world only: an answer that claims something earns nothing for it.

`DialogueScorer` is like tau-bench (Yao et al. 2024, arXiv:2406.12045): success is the database's final state together
with required information in what the agent said; how it got there does not count. Beyond it, the user has to leave as
served, because doing nothing leaves the records of a wish that is to be refused as they should be. Changes that the
user had not agreed to, or that the policy forbids, are labels.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from agent2.environments.dialogue import DANGERS as DIALOGUE_DANGERS
from agent2.environments.dialogue import GAVE_UP, SERVED, states_fact
from agent2.environments.tools.toolboxes import DANGERS, SEARCH, ProgramCheck, failures, source_text
from agent2.environments.tools.world import EMITS, LOGIN, ErrorKind, answer_of, danger_labels, trace_labels, trace_views
from agent2.errors import Fault, unknown_name
from agent2.records import Item, JsonValue, Rollout, Score, ScorerOutput
from agent2.stats.agent_metrics import AgentRun

CallData = Mapping[str, JsonValue]
MATCH_MODES = ("strict", "unordered", "superset", "subset")


class FunctionCallScorer:
    """1.0 if the calls, in any order, are exactly those asked for and gave the expected results."""

    name = "function_calls"
    version = "1.0"
    needs_state = frozenset({"tool_calls"})
    emits = EMITS | ScorerOutput(
        views=frozenset({"ast_match"}),
        labels=frozenset(
            {"called_without_need", "irrelevance_not_said", "no_call", "malformed_call", "missing_call", "extra_call"}
            | {"wrong_arguments", "wrong_function"}
        ),
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault only if the item lists no calls at all."""
        gold = item.payload.get("gold")
        if gold is None:
            return _no_target(item, "gold")
        calls = rollout.state["tool_calls"]
        if not gold:
            value = float(not calls and answer_of(rollout.state) == item.reference)
            reason = f"no offered function fits; it {'said so' if value else f'did not say {item.reference!r}'}"
            labels = [] if value else ["called_without_need" if calls else "irrelevance_not_said"]
            return Score(value, reason, views=_views(rollout, ast_match=value), labels=_labels(rollout, labels))
        ran = [call for call in calls if call["error"] is None]
        value = float(len(ran) == len(calls) and _results(ran) == _results(gold))
        match = float(_written(calls, gold) == _written(gold, gold))
        reason = f"{len(ran)} of {len(calls)} calls ran; asked for: {_names(gold)}, called: {_names(calls)}"
        labels = [] if value else [_why(calls, gold)]
        return Score(value, reason, views=_views(rollout, ast_match=match), labels=_labels(rollout, labels))


class TrajectoryMatchScorer:
    """1.0 if the calls of an episode are those of a reference trajectory.

    Settings: `mode`: `strict` (the same calls in the same order), `unordered` (in any order), `superset` (at least
    these) or `subset` (none but these); `arguments`: whether they have to be equal, too. The reference is the payload's
    `reference_calls` ({name, arguments}), or that of the final state of an imported trajectory.
    """

    name = "trajectory_match"
    version = "1.0"
    needs_state = frozenset({"tool_calls"})
    emits = ScorerOutput(
        views=frozenset({"calls_matched", "calls_wanted", "calls_made"}),
        labels=frozenset({"missing_call", "extra_call", "call_order"}),
    )

    def __init__(self, mode: str = "strict", *, arguments: bool = True) -> None:
        """Raises ConfigError for another mode."""
        if mode not in MATCH_MODES:
            raise unknown_name("mode", mode, MATCH_MODES, f"scorer {self.name}")
        self._mode, self._arguments = mode, arguments
        self.version += f"+{mode}{'' if arguments else '-names'}"

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault if there is no reference."""
        wanted = item.payload.get("reference_calls", rollout.state.get("reference_calls"))
        if wanted is None:
            return _no_target(item, "reference_calls")
        made, asked = self._keys(rollout.state["tool_calls"]), self._keys(wanted)
        missing, extra = Counter(asked) - Counter(made), Counter(made) - Counter(asked)
        labels = [
            *(["missing_call"] if missing and self._mode != "subset" else []),
            *(["extra_call"] if extra and self._mode != "superset" else []),
            *(["call_order"] if self._mode == "strict" and not missing and not extra and made != asked else []),
        ]
        views = {
            "calls_matched": float(len(asked) - missing.total()),
            "calls_wanted": float(len(asked)),
            "calls_made": float(len(made)),
        }
        told = f"{len(asked) - missing.total()} of {len(asked)} wanted calls made, {extra.total()} besides"
        if "call_order" in labels:
            told += ", in another order"
        return Score(float(not labels), f"{told} ({self._mode})", views=views, labels=tuple(labels))

    def _keys(self, calls: Sequence[CallData]) -> list[str]:
        """Each call as one text, the same for equal calls."""
        return [
            json.dumps([call["name"], call["arguments"] if self._arguments else None], sort_keys=True) for call in calls
        ]


class ApiCallScorer:
    """1.0 if the asked-for API was found by a search, then called rightly, and the state is as it should be."""

    name = "api_calls"
    version = "1.0"
    needs_state = frozenset({"final", "tool_calls"})
    emits = EMITS | ScorerOutput(
        views=frozenset({"api_called", "order_correct", "state_success", "response_exact"}),
        labels=frozenset(
            {"api_called_before_search", "api_not_searched", "wrong_arguments", "wrong_api", "claimed_without_doing"}
            | {"response_wrong", "no_final_answer"}
        ),
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault only if the item has no target."""
        gold, target = item.payload.get("gold"), item.payload.get("target")
        if gold is None or target is None:
            return _no_target(item, "gold and target")
        calls, final = rollout.state["tool_calls"], rollout.state["final"]
        hits = [place for place, call in enumerate(calls) if _is_hit(call, gold)]
        is_ordered = _is_ordered(calls)
        state_right = all(final.get(key) == wanted for key, wanted in target.items())
        value = float(bool(hits) and is_ordered and state_right)
        answer = answer_of(rollout.state)
        is_answered = float(answer == item.reference)
        views = _views(
            rollout,
            api_called=float(bool(hits)),
            order_correct=float(is_ordered),
            state_success=float(state_right),
            response_exact=is_answered,
        )
        labels = _api_labels(calls, gold, value=value, answer=answer, is_answered=is_answered)
        reason = (
            f"{gold['name']} {'gave' if hits else 'never gave'} {gold['result']!r}; "
            f"state {'as asked' if state_right else 'not as asked'}"
        )
        return Score(value, reason, views=views, labels=_labels(rollout, labels))


def agent_run(rollout: Rollout, score: Score) -> AgentRun:
    """One rollout of the tool world in the terms of `stats.agent_metrics`."""
    views = score.views

    def whole(name: str) -> int | None:
        value = views.get(name)
        return None if value is None else int(value)

    usage = rollout.usage
    return AgentRun(
        item=rollout.item_id,
        task_success=score.value,
        state_success=views.get("state_success"),
        n_tool_calls=whole("tool_calls"),
        n_valid_tool_calls=whole("tool_calls_valid"),
        n_failures=whole("tool_errors"),
        n_recovered=whole("tool_errors_recovered"),
        n_steps=len(rollout.turns),
        tokens=float(usage.prompt_tokens + usage.completion_tokens),
        seconds=usage.seconds,
        n_violations=whole("safety_violations"),
    )


def _no_target(item: Item, keys: str) -> Score:
    return Score(None, f"item {item.id} has no {keys} in its payload; correct the benchmark", Fault.JUDGE)


def _views(rollout: Rollout, **own: float) -> dict[str, float | None]:
    return {**trace_views(rollout.state), **own}


def _labels(rollout: Rollout, own: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*own, *trace_labels(rollout.state)}))


def _results(calls: Sequence[CallData]) -> list[str]:
    """Names and results in a fixed order."""
    return sorted(json.dumps([call["name"], call["result"]]) for call in calls)


def _written(calls: Sequence[CallData], gold: Sequence[CallData]) -> list[str]:
    """Names and arguments in a fixed order; an optional argument that was left out counts as its default."""
    optional = {call["name"]: call["optional"] for call in gold}
    return sorted(
        json.dumps([call["name"], {**optional.get(call["name"], {}), **call["arguments"]}], sort_keys=True)
        for call in calls
    )


def _names(calls: Sequence[CallData]) -> str:
    return ", ".join(str(call["name"]) for call in calls) or "nothing"


def _why(calls: Sequence[CallData], gold: Sequence[CallData]) -> str:
    """The first thing that is wrong with calls that are not those asked for."""
    if not calls:
        return "no_call"
    if any(call["error"] == ErrorKind.MALFORMED_CALL for call in calls):
        return "malformed_call"
    if len(calls) != len(gold):
        return "missing_call" if len(calls) < len(gold) else "extra_call"
    return "wrong_arguments" if _sorted_names(calls) == _sorted_names(gold) else "wrong_function"


def _sorted_names(calls: Sequence[CallData]) -> list[str]:
    return sorted(str(call["name"]) for call in calls)


def _is_hit(call: CallData, gold: CallData) -> bool:
    return all(call[key] == gold[key] for key in ("name", "arguments", "result")) and call["error"] is None


def _is_ordered(calls: Sequence[CallData]) -> bool:
    """True if a search succeeded before anything else but `login` was tried."""
    for call in calls:
        if call["name"] == SEARCH.name:
            if call["error"] is None:
                return True
        elif call["name"] is not None and call["name"] != LOGIN:
            return False
    return False


def _api_labels(
    calls: Sequence[CallData], gold: CallData, *, value: float, answer: str | None, is_answered: float
) -> list[str]:
    labels = []
    if not _is_ordered(calls):
        labels.append("api_called_before_search" if any(call["name"] for call in calls) else "api_not_searched")
    tried = [call for call in calls if call["name"] not in {SEARCH.name, LOGIN, None}]
    if not value and tried:
        labels.append("wrong_arguments" if any(call["name"] == gold["name"] for call in tried) else "wrong_api")
    if not value and answer is not None:
        labels.append("claimed_without_doing")
    if value and not is_answered:
        labels.append("response_wrong" if answer is not None else "no_final_answer")
    return labels


class ResolvedScorer:
    """1.0 if all hidden tests pass on the final files."""

    name = "resolved"
    version = "1.0"
    needs_state = frozenset({"final", "tool_calls"})
    emits = (
        EMITS
        | danger_labels(DANGERS)
        | ScorerOutput(
            views=frozenset({"state_success", "hidden_tests_passed", "submitted", "tests_run"}),
            labels=frozenset(
                {"ended_in_words", "not_submitted", "no_patch", "wrong_patch", "visible_tests_only"}
                | {"tests_not_run_after_patch"}
            ),
        )
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault only if the item has no hidden tests."""
        if not (hidden := item.payload.get("hidden_tests")):
            return Score(None, f"item {item.id} has no hidden_tests; correct the benchmark", Fault.JUDGE)
        checks = [ProgramCheck(name, tuple(arguments), expected) for name, arguments, expected in hidden]
        final, calls = rollout.state["final"], rollout.state["tool_calls"]
        wrong = failures(source_text(final["files"]), checks)
        value = float(not wrong)
        visible = _last_test(calls)
        views = {
            **trace_views(rollout.state),
            "state_success": value,
            "hidden_tests_passed": 1.0 - len(wrong) / len(checks),
            "submitted": float(final["is_submitted"]),
            "tests_run": float(sum(call["name"] == "test" and call["error"] is None for call in calls)),
        }
        reason = f"{len(checks) - len(wrong)} of {len(checks)} hidden tests pass" + (f"; {wrong[0]}" if wrong else "")
        labels = {*trace_labels(rollout.state), *_repository_labels(calls, is_resolved=not wrong, visible=visible)}
        if not final["is_submitted"]:
            claimed = answer_of(rollout.state) is not None
            labels.add("ended_in_words" if claimed else "not_submitted")
        return Score(value, reason, views=views, labels=tuple(sorted(labels)))


def _repository_labels(calls: Sequence[CallData], *, is_resolved: bool, visible: str | None) -> list[str]:
    labels = []
    edits = [place for place, call in enumerate(calls) if call["name"] == "edit" and call["error"] is None]
    if not edits and not is_resolved:
        labels.append("no_patch")
    if edits and not any(call["name"] == "test" and call["error"] is None for call in calls[edits[-1] :]):
        labels.append("tests_not_run_after_patch")
    if edits and not is_resolved:
        labels.append("visible_tests_only" if visible == "passed" else "wrong_patch")
    return labels


def _last_test(calls: Sequence[CallData]) -> str | None:
    """What the last run of the visible tests after the last edit said, None if there was none."""
    said = None
    for call in calls:
        if call["error"] is None and call["name"] in {"edit", "test"}:
            said = str(call["result"]) if call["name"] == "test" else None
    return said


class DialogueScorer:
    """1.0 if the records are as the target says, every required text was said, and the user left as served."""

    name = "dialogue_state"
    version = "1.0"
    needs_state = frozenset({"final", "tool_calls", "safety_violations"})
    emits = (
        EMITS
        | danger_labels(DIALOGUE_DANGERS)
        | ScorerOutput(
            views=frozenset({"records_right", "told_share", "user_served"}),
            labels=frozenset({"record_wrong", "record_missed", "not_told", "user_gave_up"}),
        )
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; a judge fault only if item or state are of another world."""
        try:
            target, required = item.payload["target"]["changes"], [str(one) for one in item.payload["target"]["told"]]
            final = rollout.state["final"]
            changes, said, left = final["changes"], [str(one) for one in final["said"]], final["left"]
            views = trace_views(rollout.state)
            labels = set(trace_labels(rollout.state))
        except (KeyError, TypeError) as error:
            return Score(None, f"{item.id} or its state is of another world ({error})", Fault.JUDGE)
        is_right = changes == target
        told = [any(states_fact(one, text) for one in said) for text in required]
        views |= {
            "records_right": float(is_right),
            "told_share": sum(told) / len(told) if told else None,
            "user_served": float(left == SERVED),
        }
        if not is_right:
            wanted = [row[:2] for row in target]
            labels.add("record_missed" if all(row in target for row in changes) else "record_wrong")
            reason = f"changed {_named(changes)}, should have {_named(target, wanted)}"
        else:
            reason = f"the records are right ({_named(changes)})"
        if not all(told):
            labels.add("not_told")
            reason += f"; not told: {', '.join(text for text, ok in zip(required, told, strict=True) if not ok)}"
        if left == GAVE_UP:
            labels.add("user_gave_up")
        if left != SERVED:
            reason += "; the user left without being served" if left == GAVE_UP else "; the user still waits"
        return Score(
            float(is_right and all(told) and left == SERVED), reason, views=views, labels=tuple(sorted(labels))
        )


def _named(changes: Sequence[JsonValue], rows: Sequence[JsonValue] | None = None) -> str:
    names = [f"{row[0].removesuffix('s')} {row[1]}" for row in (changes if rows is None else rows)]
    return ", ".join(names) or "nothing"
