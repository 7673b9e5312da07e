"""An expert player that solves household games by searching, knowing only what it has read.

It reads the opening and every observation, looks for the target in the order in which the opening lists the
receptacles, opening closed ones, and then does with the target what the task asks. It remembers what it has read, also
when another player chose the actions: `read` every observation, and call `next_command` whenever one is needed.

Promises: no knowledge of the game beyond those texts; the same observations give the same commands (after an action
that had no effect some choices are drawn from the seed). Does NOT plan, and is not the shortest player: it visits
receptacles that a luckier one would skip.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agent2.errors import EnvironmentFailed, quoted

_NAME = re.compile(r"\ba ([a-z]+ \d+)")
_GOALS = tuple(
    (treatment, re.compile(pattern))
    for treatment, pattern in (
        ("look", r"(?:look at|examine the|examine) (?P<target>\w+) (?:under|with) the (?P<destination>\w+)"),
        ("two", r"(?:put two|find two) (?P<target>\w+) (?:and put them )?(?:in|on) (?P<destination>\w+)"),
        ("clean", r"(?:put a clean|clean some) (?P<target>\w+) (?:and put it )?(?:in|on) (?P<destination>\w+)"),
        ("heat", r"(?:put a hot|heat some) (?P<target>\w+) (?:and put it )?(?:in|on) (?P<destination>\w+)"),
        ("cool", r"(?:put a cool|cool some) (?P<target>\w+) (?:and put it )?(?:in|on) (?P<destination>\w+)"),
        ("put", r"(?:put a|put some) (?P<target>\w+) (?:in|on) (?P<destination>\w+)"),
    )
)
"""Treatments with the goal sentences that ask for them; the first match counts."""
_TOOLS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
_ARRIVED = re.compile(r"You arrive at ([a-z]+ \d+)\.")
_FACING = re.compile(r"You are facing the ([a-z]+ \d+)\.")
_OPENED = re.compile(r"You open the ([a-z]+ \d+)\.")
_CLOSED = re.compile(r"You close the ([a-z]+ \d+)\.")
_TOOK = re.compile(r"You pick up the ([a-z]+ \d+) from the ([a-z]+ \d+)\.")
_MOVED = re.compile(r"You move the ([a-z]+ \d+) to the ([a-z]+ \d+)\.")
_TREATED = re.compile(r"You (clean|heat|cool) the ([a-z]+ \d+) using the ([a-z]+ \d+)\.")
_CARRYING = re.compile(r"You are carrying: a ([a-z]+ \d+)\.")
_CONTENTS = re.compile(r"(?:On the ([a-z]+ \d+), you see|The ([a-z]+ \d+) is open\. In it, you see) ([^.]*)\.")
_IS_CLOSED = re.compile(r"The ([a-z]+ \d+) is closed\.")
_MAX_REPEATS = 2
"""How often a command is repeated while nothing changes."""


@dataclass(slots=True)
class _Memory:
    """What has been read so far."""

    receptacles: list[str] = field(default_factory=list)
    """In the order of the opening."""
    contents: dict[str, list[str]] = field(default_factory=dict)
    """Of the receptacles whose contents were seen."""
    closed: set[str] = field(default_factory=set)
    place: str | None = None
    held: str | None = None
    treated: set[str] = field(default_factory=set)


class SearchExpert:
    """Plays one game; single use."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._memory = _Memory()
        self._treatment = ""
        self._target = ""
        self._destination = ""
        self._commands_since_change: list[str] = []
        """The commands given since something last changed."""

    def read(self, observation: str) -> None:
        """Take in the opening (first) or an observation.

        Raises EnvironmentFailed if the first text is not an opening or states a goal of no known form.
        """
        if not self._target:
            self._read_opening(observation)
            return
        before = (self._memory.place, self._memory.held, len(self._memory.treated), sorted(self._memory.closed))
        self._update_memory(observation)
        memory = self._memory
        if before != (memory.place, memory.held, len(memory.treated), sorted(memory.closed)):
            self._commands_since_change.clear()

    def next_command(self) -> str:
        """The expert's next command. Raises EnvironmentFailed if it has read no opening yet."""
        if not self._target:
            raise EnvironmentFailed("household expert: it was asked before it read the opening; call read first")
        command = self._search_step() if self._memory.held is None else self._deliver_step(self._memory.held)
        # else a command that changes nothing would be repeated for ever
        if command is None or self._commands_since_change.count(command) >= _MAX_REPEATS:
            other_receptacles = [
                receptacle for receptacle in self._memory.receptacles if receptacle != self._memory.place
            ]
            command = (
                f"go to {other_receptacles[int(self._rng.integers(len(other_receptacles)))]}"
                if other_receptacles
                else "look"
            )
        self._commands_since_change.append(command)
        return command

    def _read_opening(self, text: str) -> None:
        room, marker, task = text.partition("Your task is to:")
        goal = task.strip().rstrip(".").lower()
        for treatment, pattern in _GOALS:
            match = pattern.fullmatch(goal)
            if match is not None:
                self._treatment = treatment
                self._target, self._destination = match["target"], match["destination"]
                break
        self._memory.receptacles = _NAME.findall(room)
        if not marker or not self._target or not self._memory.receptacles:
            raise EnvironmentFailed(
                f"household expert: {quoted(text)} is not an opening that it understands; "
                "it knows the goal sentences of the six published task types"
            )

    def _update_memory(self, text: str) -> None:
        """Update the memory from an observation, whichever player acted."""
        memory = self._memory
        if (match := _ARRIVED.search(text) or _FACING.search(text)) is not None:
            memory.place = match[1]
        if (match := _OPENED.search(text)) is not None:
            memory.closed.discard(match[1])
        if (match := _CLOSED.search(text) or _IS_CLOSED.search(text)) is not None:
            memory.closed.add(match[1])
        if (match := _CONTENTS.search(text)) is not None:
            receptacle = match[1] or match[2]
            memory.closed.discard(receptacle)
            memory.contents[receptacle] = _NAME.findall(match[3])
        if (match := _TOOK.search(text)) is not None:
            memory.held, memory.place = match[1], match[2]
            if match[1] in memory.contents.get(match[2], ()):
                memory.contents[match[2]].remove(match[1])
        if (match := _MOVED.search(text)) is not None:
            memory.held, memory.place = None, match[2]
            memory.contents.setdefault(match[2], []).append(match[1])
        if (match := _TREATED.search(text)) is not None:
            self._note_treatment(match[1], match[2])
        if (match := _CARRYING.search(text)) is not None:
            memory.held = match[1]
        if "You are not carrying anything." in text:
            memory.held = None

    def _note_treatment(self, treatment: str, name: str) -> None:
        if treatment == self._treatment:
            self._memory.treated.add(name)
        elif {treatment, self._treatment} == {"heat", "cool"}:
            self._memory.treated.discard(name)

    def _search_step(self) -> str | None:
        """With empty hands: take a target that was seen, or look into the next receptacle."""
        memory = self._memory
        targets = self._wanted_targets()
        here = [name for name, receptacle in targets if receptacle == memory.place]
        if here:
            return f"take {here[0]} from {memory.place}"
        if targets:
            return f"go to {targets[0][1]}"
        return self._explore_step()

    def _wanted_targets(self) -> list[tuple[str, str]]:
        """Targets that were seen and are not at their destination yet, with their receptacles."""
        memory = self._memory
        settled = self._settled_destination()
        return [
            (name, receptacle)
            for receptacle in memory.receptacles
            if receptacle not in memory.closed and receptacle != settled
            for name in memory.contents.get(receptacle, ())
            if _kind(name) == self._target
        ]

    def _settled_destination(self) -> str | None:
        """The destination that already holds one of two targets; None for other tasks."""
        if self._treatment != "two":
            return None
        counts = {
            receptacle: sum(_kind(name) == self._target for name in self._memory.contents.get(receptacle, ()))
            for receptacle in self._memory.receptacles
            if _kind(receptacle) == self._destination
        }
        best = max(counts, key=lambda receptacle: counts[receptacle], default=None)
        return best if best is not None and counts[best] else None

    def _explore_step(self) -> str | None:
        """Open the closed receptacle here, else go to the first one whose contents are unknown."""
        memory = self._memory
        if memory.place in memory.closed:
            return f"open {memory.place}"
        for receptacle in memory.receptacles:
            if receptacle not in memory.contents or receptacle in memory.closed:
                return f"go to {receptacle}"
        return None

    def _deliver_step(self, held: str) -> str | None:
        """With an object in hand: treat it, then bring it to its destination."""
        memory = self._memory
        if _kind(held) != self._target:
            if self._memory.place in self._memory.closed:
                return f"open {self._memory.place}"
            return f"move {held} to {self._memory.place}" if self._memory.place is not None else self._explore_step()
        tool = _TOOLS.get(self._treatment)
        if tool is not None and held not in memory.treated:
            return self._command_at(self._of_kind(tool), f"{self._treatment} {held} with {{}}")
        if self._treatment == "look":
            lamps = [
                (name, receptacle)
                for receptacle in memory.receptacles
                for name in memory.contents.get(receptacle, ())
                if _kind(name) == self._destination
            ]
            here = [name for name, receptacle in lamps if receptacle == memory.place]
            if here:
                return f"use {here[0]}"
            return f"go to {lamps[0][1]}" if lamps else self._explore_step()
        settled = self._settled_destination()
        destinations = [settled] if settled is not None else self._of_kind(self._destination)
        if memory.place in destinations and memory.place in memory.closed:
            return f"open {memory.place}"
        return self._command_at(destinations, f"move {held} to {{}}")

    def _command_at(self, receptacles: Sequence[str], command: str) -> str | None:
        """The command at one of the receptacles, or `go to` the first of them; None if there is none."""
        if self._memory.place in receptacles:
            return command.format(self._memory.place)
        return f"go to {receptacles[0]}" if receptacles else None

    def _of_kind(self, kind: str) -> list[str]:
        return [receptacle for receptacle in self._memory.receptacles if _kind(receptacle) == kind]


def _kind(name: str) -> str:
    """A name without its number: "shelf" for "shelf 1"."""
    return name.rsplit(" ", 1)[0]
