"""Chooses how the limits of a program are enforced here: our own control groups, a systemd scope, or neither."""

import itertools

from agent2.sandbox.launch import Keeper
from agent2.sandbox.limits import ControlGroup, Hierarchy, hierarchies
from agent2.sandbox.scopes import Scope, scopes_unusable
from agent2.sandbox.spec import Limits

_numbers = itertools.count()


def held_by(as_root: bool) -> dict[str, str]:
    """For each of "memory" and "pids" that the kernel limits here, by what. as_root: whether we have root's rights."""
    grouped = {name for name, place in hierarchies().items() if isinstance(place, Hierarchy)}
    if "memory" not in grouped and scopes_unusable(as_root=as_root) is None:
        return dict.fromkeys(("memory", "pids"), "systemd scope")
    return dict.fromkeys(grouped, "control group")


def keeper(limits: Limits, as_root: bool) -> tuple[Keeper, tuple[str, ...]]:
    """The keeper for one program, and what has to go before its command line."""
    if "systemd scope" in held_by(as_root).values():
        scope = Scope(limits, as_root=as_root)
        return scope, scope.command()
    return ControlGroup(str(next(_numbers)), limits, hierarchies()), ()
