"""Moves that many attacks share: a hostile program, run in the sandbox and run without it."""

from collections.abc import Callable
from typing import Any

from red_team.frame import Move, Outcome
from red_team.scene import ProgramRun, Scene

Judge = Callable[[Scene, ProgramRun], Outcome]


def program_moves(program: str, judge: Judge | None = None, **parts: Any) -> tuple[Move, Move]:
    """`attempt` in the sandbox as an agent, `control` without a sandbox; judged by its output without `judge`."""
    verdict = judge or judge_loot

    def attempt(scene: Scene) -> Outcome:
        return verdict(scene, scene.run(program, **parts))

    def control(scene: Scene) -> Outcome:
        return verdict(scene, scene.run_freely(program, **parts))

    return attempt, control


def holding_moves(program: str, **parts: Any) -> tuple[Move, Move]:
    """The same for a program that says "done" once it has held what it took for `HOLD_S` seconds.

    The attempt holds it long: on a busy machine the watchdog looks seldom.
    """

    def attempt(scene: Scene) -> Outcome:
        return judge_words(scene, scene.run(f"HOLD_S = 60\n{program}", **parts))

    def control(scene: Scene) -> Outcome:
        return judge_words(scene, scene.run_freely(f"HOLD_S = 3\n{program}", **parts))

    return attempt, control


def victim_moves(program: str) -> tuple[Move, Move]:
    """The same against a living process of the harness, whose number the attacker knows."""

    def attempt(scene: Scene) -> Outcome:
        with scene.victim() as victim:
            return judge_loot(scene, scene.run(program, more={"victim": victim.pid}))

    def control(scene: Scene) -> Outcome:
        with scene.victim() as victim:
            return judge_loot(scene, scene.run_freely(program, more={"victim": victim.pid}))

    return attempt, control


def judge_loot(scene: Scene, ran: ProgramRun) -> Outcome:
    """Whether the program printed something hidden. Raises RuntimeError if it broke down before it could."""
    loot = scene.loot(ran.log)
    if not loot and "Traceback (most recent call last)" in ran.log:
        raise RuntimeError(f"the program broke down, which says nothing about the defence: {ran.log[-300:]}")
    return Outcome(bool(loot), f"got {loot}" if loot else last_line(ran) or "got nothing")


def judge_words(scene: Scene, ran: ProgramRun) -> Outcome:
    """Whether the program's last line begins with "done"."""
    line = last_line(ran)
    return Outcome(line.startswith("done"), line or f"printed nothing; {ran.end.reason if ran.end else 'was stopped'}")


def last_line(ran: ProgramRun) -> str:
    """Of what the program printed, cut to a table's width."""
    lines = ran.log.strip().splitlines()
    return lines[-1][:160] if lines else ""
