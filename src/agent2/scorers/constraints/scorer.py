"""IFEval's four numbers for one answer, with the classes in which it failed.

The score is prompt-level strict: 1.0 if the answer follows every instruction as it stands. Views: `prompt_level_loose`,
`instruction_level` and `instruction_level_loose` (shares of this item's instructions), and counts from which the
pooled accuracies of the paper follow as ratios: `instructions`, `instructions_followed`,
`instructions_followed_loose`, and `<class>_instructions`, `<class>_followed` for keyword, length, format and
language. Loose: the best of eight variants, without asterisks, the first and the last line.

Source: Zhou et al. 2023, arXiv:2311.07911. Where our verdicts differ from the published checker's and why:
docs/mini-benchmarks.md.
"""

from collections.abc import Sequence

from agent2.errors import ConfigError, Fault
from agent2.records import Emits, Item, Rollout, Score
from agent2.scorers.constraints.finding import Finding, InstructionClass
from agent2.scorers.constraints.instructions import Instruction, read_instructions
from agent2.scorers.constraints.keywords import FORBIDDEN, FREQUENCY, MISSING
from agent2.scorers.constraints.text import loose_variants


def default_label(kind: InstructionClass) -> str:
    """The badcase class of a failure that has no finer one."""
    return f"ifeval_{kind.value}_constraint_violation"


class ConstraintScorer:
    """Scores answers to items whose payload holds `instruction_id_list` and `kwargs`, as IFEval writes them."""

    name = "constraints"
    version = "1.0"
    emits = Emits(
        views=frozenset(
            ["prompt_level_loose", "instruction_level", "instruction_level_loose", "instructions"]
            + ["instructions_followed", "instructions_followed_loose"]
            + [f"{kind.value}_{what}" for kind in InstructionClass for what in ("instructions", "followed")]
        ),
        labels=frozenset({MISSING, FORBIDDEN, FREQUENCY, *(default_label(kind) for kind in InstructionClass)}),
    )

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; None with a judge fault only if the item's instructions cannot be read."""
        try:
            instructions = read_instructions(
                item.payload.get("instruction_id_list", ()), item.payload.get("kwargs", ()), f"item {item.id}"
            )
        except ConfigError as error:
            return Score(None, str(error), Fault.JUDGE)
        answer = rollout.answer or ""
        findings = [instruction.check(answer) for instruction in instructions]
        loose = followed_loosely(instructions, findings, answer)
        failed = [(one, found) for one, found in zip(instructions, findings, strict=True) if not found.followed]
        return Score(
            value=float(not failed),
            reason="; ".join(f"{one.name}: {found.seen}" for one, found in failed) or "every instruction is followed",
            views=_views(instructions, findings, loose),
            labels=tuple(dict.fromkeys(found.label or default_label(one.kind) for one, found in failed)),
        )


def followed_loosely(instructions: Sequence[Instruction], findings: Sequence[Finding], answer: str) -> list[bool]:
    """For each instruction, whether some variant of the answer follows it; findings are those of the answer itself."""
    if all(found.followed for found in findings):
        return [True] * len(instructions)
    variants = loose_variants(answer)[1:]
    return [
        found.followed or any(instruction.check(variant).followed for variant in variants)
        for instruction, found in zip(instructions, findings, strict=True)
    ]


def _views(
    instructions: Sequence[Instruction], findings: Sequence[Finding], loose: Sequence[bool]
) -> dict[str, float | None]:
    n_instructions, n_followed, n_loose = len(instructions), sum(found.followed for found in findings), sum(loose)
    views: dict[str, float | None] = {
        "prompt_level_loose": float(n_loose == n_instructions),
        "instruction_level": n_followed / n_instructions,
        "instruction_level_loose": n_loose / n_instructions,
        "instructions": float(n_instructions),
        "instructions_followed": float(n_followed),
        "instructions_followed_loose": float(n_loose),
    }
    for kind in InstructionClass:
        of_kind = [found.followed for one, found in zip(instructions, findings, strict=True) if one.kind is kind]
        views[f"{kind.value}_instructions"] = float(len(of_kind))
        views[f"{kind.value}_followed"] = float(sum(of_kind))
    return views
