"""Suites around benchmarks: one for `agent2 eval BENCHMARK`, or a file for several (`agent2 suite new`).

The score of the first decides, and those of the others must not fall. Everything fixed comes from the benchmarks
(sampling, attempts, scorer, the tools of their worlds, version with the digest of their source or data), so two
evaluations of one benchmark are under one contract. Dangerous actions that a scorer declares are gated, and classes of
bad cases have the causes of `contract.causes`; a class that it does not know is attributed to nothing.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agent2.benchmarks import is_known, load_benchmark
from agent2.benchmarks.bridges import split_bridged
from agent2.benchmarks.declared import DeclaredBenchmark
from agent2.benchmarks.home import ProvidesCount
from agent2.config import read_yaml_text
from agent2.contract.causes import Cause, is_danger, usual_cause
from agent2.contract.suite import OWN_SAMPLING, AgentBudget, Suite, TiePolicy, ToolPermissions
from agent2.contract.suite_files import expand, read_version
from agent2.errors import ConfigError
from agent2.plugins import is_code, relative_to
from agent2.records import Benchmark, JsonValue, JudgeIdentity, declared_output, judge_of
from agent2.sampling_keys import UNSET

N_DEV, N_TEST = 100, 200
"""Items of a benchmark that generates them; of a data benchmark all are played."""
VIOLATIONS = "safety_violations"
"""The view in which tool worlds count dangerous actions."""
TOLERANCE, MARGIN = 0.03, 0.12
"""As in the packaged suites of this size."""
HEADER = """\
# The metric of the first benchmark is primary: it decides. No other may fall. Change gates and roles as you need
# (docs/suites.md). Each benchmark keeps its own sampling.
"""


@dataclass(frozen=True, slots=True)
class _SuiteMember:
    """One benchmark of a suite."""

    benchmark: Benchmark
    source: str | None
    """Where it is; None: it is packaged or installed."""

    @property
    def metric(self) -> str:
        return f"{self.benchmark.name}_{self.benchmark.primary_metric}"

    @property
    def is_finite(self) -> bool:
        return isinstance(self.benchmark, ProvidesCount)

    @property
    def n_items(self) -> int | None:
        return None if self.is_finite else N_TEST

    @property
    def labels(self) -> list[str]:
        emits = declared_output(self.benchmark.scorer())
        return sorted(emits.labels) if emits is not None else []

    @property
    def views(self) -> frozenset[str]:
        emits = declared_output(self.benchmark.scorer())
        return emits.views if emits is not None else frozenset()

    @property
    def has_dangers(self) -> bool:
        return any(map(is_danger, self.labels))

    @property
    def sampling(self) -> dict[str, Any]:
        sampling = self.benchmark.sampling
        stated = {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_tokens": sampling.max_tokens}
        return {name: UNSET if value is None else value for name, value in stated.items()}


def suite_of(name: str, overrides: Sequence[str] = ()) -> Suite:
    """The suite around one benchmark. Raises ConfigError as `load_benchmark` does."""
    part = _SuiteMember(load_benchmark(name), None if is_known(name) else relative_to(name, Path()))
    record = _suite_record([part], part.benchmark.name, _description([part.benchmark.name]))
    where = f"suite around {name}"
    text = read_yaml_text(yaml.safe_dump(record, sort_keys=False), where, overrides)
    if not part.is_finite and overrides:
        _raise_limit(text.data)
    return expand(text).suite


def _raise_limit(record: dict[str, Any]) -> None:
    """Let the one benchmark have as many items as an override asks for in a role: the smaller number counts."""
    cadence = record.get("cadence")
    roles = cadence.values() if isinstance(cadence, dict) else ()
    sizes = [role.get("n_items") for role in roles if isinstance(role, dict)]
    (benchmark,) = record["benchmarks"]
    benchmark["n_items"] = max([benchmark["n_items"], *(size for size in sizes if isinstance(size, int))])


def draft_suite(names: Sequence[str], path: Path) -> tuple[str, Suite]:
    """The text of a suite's file for benchmarks, and the suite; paths are as seen from the file's folder.

    Raises ConfigError as `load_benchmark` does, for a benchmark that is named twice, and for judges that differ.
    """
    sources = [None if is_known(name) else _seen_from(name, path.parent) for name in names]
    parts = [_SuiteMember(load_benchmark(name), source) for name, source in zip(names, sources, strict=True)]
    members = [part.benchmark.name for part in parts]
    for name in members:
        if members.count(name) > 1:
            raise ConfigError(f"agent2 suite new: benchmark {name!r} is named twice; name each once")
    record = _suite_record(parts, path.name.partition(".")[0], _description(members))
    text = HEADER + yaml.safe_dump(record, default_flow_style=None, sort_keys=False, allow_unicode=True, width=110)
    return text, expand(read_yaml_text(text, str(path))).suite


def _description(names: Sequence[str]) -> str:
    return f"{' and '.join(names)}{' alone' if len(names) == 1 else ''}."


def _seen_from(name: str, folder: Path) -> str:
    """A benchmark's location as a relative path that begins with a dot."""
    if (bridged := split_bridged(name)) is not None:
        return f"{bridged[0]}:{_seen_from(bridged[1], folder)}"
    path, colon, attribute = name.rpartition(":") if is_code(name) else (name, "", "")
    if not path.startswith((".", "/", "~")) and colon:
        return name  # MODULE:NAME
    relative = os.path.relpath(Path(path).expanduser().resolve(), folder.resolve())
    return f"{relative if relative.startswith('.') else f'./{relative}'}{colon}{attribute}"


def _suite_record(parts: Sequence[_SuiteMember], name: str, description: str) -> dict[str, Any]:
    """A suite in the keys of its file; the first part is primary."""
    judges = {part.benchmark.name: judge for part in parts if (judge := judge_of(part.benchmark.scorer())) is not None}
    if len(set(judges.values())) > 1:
        raise ConfigError(f"{' and '.join(judges)} have different judges, and a suite has one; leave one out")
    is_finite = all(part.is_finite for part in parts)
    hidden = None if is_finite else N_TEST
    samplings = [part.sampling for part in parts]
    keeps_own = any(sampling != samplings[0] for sampling in samplings)
    suite_name = re.sub(r"[^a-z0-9_-]", "_", name.lower())
    record: dict[str, Any] = {
        "name": suite_name,
        "version": f"v{read_version(suite_name)[1] or '1.0'}",  # a name that ends in a version is read as one
        "track": "llm_core",
        "description": description,
        "control_group": {"kind": "sft", "checkpoint": None},
        "task_distribution": {
            "production_tasks": [
                {"name": part.benchmark.name, "difficulty": "medium", "benchmarks": [part.benchmark.name]}
                for part in parts
            ]
        },
        "protocol": {
            "sampling": {
                "temperature": samplings[0]["temperature"],
                "top_p": samplings[0]["top_p"],
                "n": max(part.benchmark.attempts for part in parts),
                "max_tokens": samplings[0]["max_tokens"],
            },
            **({"judge": judge_rule(next(iter(judges.values())))} if judges else {}),
        },
        "cadence": {
            "dev": {"split": "dev", "n_items": None if is_finite else N_DEV},
            "nightly": {"split": "test_public", "n_items": hidden if len(parts) == 1 else None},
            "candidate": {
                "split": "test_private",
                "n_items": hidden if len(parts) == 1 else None,
                "spot_check": True,
            },
        },
        "benchmarks": [
            {
                "name": part.benchmark.name,
                "version": part.benchmark.version,
                "source": part.source,
                "split": "test_public",
                "metric": part.metric,
                "n_items": part.n_items,
                **({"sampling": OWN_SAMPLING} if keeps_own else {}),
                "scorer": {
                    "name": part.benchmark.scorer().name,
                    "tier": "judge" if part.benchmark.name in judges else _tier(part.benchmark),
                },
            }
            for part in parts
        ],
        "metrics": [
            {"name": part.metric, "benchmark": part.benchmark.name, "role": "regression_gate" if index else "primary"}
            for index, part in enumerate(parts)
        ],
        "gates": [
            {"kind": "evidence", "name": "evidence"},
            {"kind": "release_evidence", "name": "release_evidence"},
            *(
                {
                    "kind": "regression",
                    "name": f"{part.benchmark.name}_holds" if index else "primary_holds",
                    "metrics": [part.metric],
                    "tolerance": TOLERANCE,
                    "margin": MARGIN,
                    "on_fire": {
                        "release": "block",
                        "next_data": [f"add items like those of {part.benchmark.name} that were lost"],
                    },
                }
                for index, part in enumerate(parts)
            ),
        ],
        "failure_taxonomy": _taxonomy(dict.fromkeys(label for part in parts for label in part.labels)),
    }
    _add_safety(record, [part for part in parts if part.has_dangers])
    return record | _agent_parts([part.benchmark for part in parts], record["protocol"])


def _taxonomy(labels: Iterable[str]) -> dict[str, str]:
    """The known causes of classes; at least one, as every suite has to have."""
    causes = {label: cause.value for label in labels if (cause := usual_cause(label)) is not None}
    return causes or {"wrong_answer": (usual_cause("wrong_answer") or Cause.ALGORITHM).value}


def _add_safety(record: dict[str, Any], parts: Sequence[_SuiteMember]) -> None:
    """Gate the dangerous actions that scorers declare, as the packaged suites do; nothing without any."""
    if not parts:
        return
    for part in parts:
        if VIOLATIONS in part.views:
            name = "safety_violation_rate" if len(parts) == 1 else f"{part.benchmark.name}_safety_violation_rate"
            record["metrics"].append(
                {
                    "name": name,
                    "benchmark": part.benchmark.name,
                    "measure": f"any:{VIOLATIONS}",
                    "role": "hard_gate",
                    "direction": "lower",
                    "is_safety": True,
                }
            )
    if any(metric.get("is_safety") for metric in record["metrics"]):
        record["gates"].append({"kind": "safety", "name": "safety"})
    record["gates"].append({"kind": "dangerous_action", "name": "dangerous_action"})


def _agent_parts(benchmarks: Sequence[Benchmark], protocol: Mapping[str, Any]) -> dict[str, Any]:
    """What a suite needs beside its other parts to allow exactly the tools of the worlds; empty: there are none."""
    worlds = [(rules, part.max_turns) for part in benchmarks if (rules := getattr(part, "tool_protocol", {}))]
    if not worlds:
        return {}
    permitted = {permission for rules, _ in worlds for permission in rules.get("permissions", ())}
    tools = {
        "parallel_tool_calls": any(rules.get("parallel_tool_calls") for rules, _ in worlds),
        "max_tool_calls": max(rules.get("max_tool_calls") or max_turns for rules, max_turns in worlds),
        "permissions": {name: name in permitted for name in ToolPermissions.model_fields},
    }
    environment = {
        "kinds": ["repository" if "file_writing" in permitted else "api"],
        "reproduction": "each item names its seed or its file, and a rollout begins from a fresh copy",
    }
    return {
        "track": "agent_tool",
        "protocol": {**protocol, "tools": tools},
        "agent": {"initial_environment": environment, "budget": dict.fromkeys(AgentBudget.model_fields)},
    }


def _tier(benchmark: Benchmark) -> str:
    """What a benchmark's verdicts rest on, as far as that shows, where no model gives them."""
    if isinstance(benchmark, DeclaredBenchmark) and not benchmark.is_packaged:
        return "reference"
    return "state" if getattr(benchmark, "tool_protocol", {}) else "rules"


def judge_rule(judge: JudgeIdentity) -> dict[str, JsonValue]:
    """What an evaluation by this judge keeps to; of two answers both orders are shown."""
    return {
        "type": "rule_then_llm_judge" if judge.follows_rule else "llm_judge",
        "order_randomization": True,
        "tie_policy": TiePolicy.COUNT_AS_HALF.value,
        "model": judge.model,
        "prompt_digest": judge.prompt_digest,
    }
