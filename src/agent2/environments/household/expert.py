"""A player that solves household games by searching, knowing only what it has read.

It reads the opening and every observation, and looks for what the task names in the order in which the opening lists
the receptacles, opening what is closed; then it does with it what the task asks. It keeps what it has seen in mind,
also when another player chose the actions: `read` every observation, ask for a `next_command` whenever one is wanted.

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
"""What a goal sentence asks for; the first pattern that fits."""
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
"""So many times the same command is tried in a row while nothing changes."""


@dataclass(slots=True)
class _Memory:
    """What has been read so far."""

    receptacles: list[str] = field(default_factory=list)
    """In the order of the opening."""
    contents: dict[str, list[str]] = field(default_factory=dict)
    """Of the receptacles that were looked into."""
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
        self._asked: list[str] = []
        """The commands given since something last changed."""

    def read(self, observation: str) -> None:
        """Take in the opening (first) or an observation.

        Raises EnvironmentFailed if the first text is not an opening or states a goal of no known form.
        """
        if not self._target:
            self._read_opening(observation)
            return
        before = (self._memory.place, self._memory.held, len(self._memory.treated), sorted(self._memory.closed))
        self._take_in(observation)
        memory = self._memory
        if before != (memory.place, memory.held, len(memory.treated), sorted(memory.closed)):
            self._asked.clear()

    def next_command(self) -> str:
        """What the expert would do now. Raises EnvironmentFailed if it has read no opening yet."""
        if not self._target:
            raise EnvironmentFailed("household expert: it was asked before it read the opening; call read first")
        command = self._search_step() if self._memory.held is None else self._errand_step(self._memory.held)
        if command is None or self._asked.count(command) >= _MAX_REPEATS:
            others = [receptacle for receptacle in self._memory.receptacles if receptacle != self._memory.place]
            command = f"go to {others[int(self._rng.integers(len(others)))]}" if others else "look"
        self._asked.append(command)
        return command

    def _read_opening(self, text: str) -> None:
        room, marker, task = text.partition("Your task is to:")
        goal = task.strip().rstrip(".").lower()
        for treatment, pattern in _GOALS:
            found = pattern.fullmatch(goal)
            if found is not None:
                self._treatment = treatment
                self._target, self._destination = found["target"], found["destination"]
                break
        self._memory.receptacles = _NAME.findall(room)
        if not marker or not self._target or not self._memory.receptacles:
            raise EnvironmentFailed(
                f"household expert: {quoted(text)} is not an opening that it understands; "
                "it knows the goal sentences of the six published task types"
            )

    def _take_in(self, text: str) -> None:
        """Update the memory by whatever the text says, whoever acted."""
        memory = self._memory
        if (found := _ARRIVED.search(text) or _FACING.search(text)) is not None:
            memory.place = found[1]
        if (found := _OPENED.search(text)) is not None:
            memory.closed.discard(found[1])
        if (found := _CLOSED.search(text) or _IS_CLOSED.search(text)) is not None:
            memory.closed.add(found[1])
        if (found := _CONTENTS.search(text)) is not None:
            receptacle = found[1] or found[2]
            memory.closed.discard(receptacle)
            memory.contents[receptacle] = _NAME.findall(found[3])
        if (found := _TOOK.search(text)) is not None:
            memory.held, memory.place = found[1], found[2]
            if found[1] in memory.contents.get(found[2], ()):
                memory.contents[found[2]].remove(found[1])
        if (found := _MOVED.search(text)) is not None:
            memory.held, memory.place = None, found[2]
            memory.contents.setdefault(found[2], []).append(found[1])
        if (found := _TREATED.search(text)) is not None:
            self._note_treatment(found[1], found[2])
        if (found := _CARRYING.search(text)) is not None:
            memory.held = found[1]
        if "You are not carrying anything." in text:
            memory.held = None

    def _note_treatment(self, treatment: str, thing: str) -> None:
        if treatment == self._treatment:
            self._memory.treated.add(thing)
        elif {treatment, self._treatment} == {"heat", "cool"}:
            self._memory.treated.discard(thing)

    def _search_step(self) -> str | None:
        """With empty hands: fetch a target that was seen, or look into the next receptacle."""
        memory = self._memory
        found = self._wanted_targets()
        here = [thing for thing, receptacle in found if receptacle == memory.place]
        if here:
            return f"take {here[0]} from {memory.place}"
        if found:
            return f"go to {found[0][1]}"
        return self._look_further()

    def _wanted_targets(self) -> list[tuple[str, str]]:
        """Targets that were seen and are not where they should be already, with their receptacles."""
        memory = self._memory
        settled = self._settled_place()
        return [
            (thing, receptacle)
            for receptacle in memory.receptacles
            if receptacle not in memory.closed and receptacle != settled
            for thing in memory.contents.get(receptacle, ())
            if _kind(thing) == self._target
        ]

    def _settled_place(self) -> str | None:
        """Where one of two targets is already at its destination; None for other tasks."""
        if self._treatment != "two":
            return None
        counts = {
            receptacle: sum(_kind(thing) == self._target for thing in self._memory.contents.get(receptacle, ()))
            for receptacle in self._memory.receptacles
            if _kind(receptacle) == self._destination
        }
        best = max(counts, key=lambda receptacle: counts[receptacle], default=None)
        return best if best is not None and counts[best] else None

    def _look_further(self) -> str | None:
        """Open what is in front of us, else go to the first receptacle whose inside is unknown."""
        memory = self._memory
        if memory.place in memory.closed:
            return f"open {memory.place}"
        for receptacle in memory.receptacles:
            if receptacle not in memory.contents or receptacle in memory.closed:
                return f"go to {receptacle}"
        return None

    def _errand_step(self, held: str) -> str | None:
        """With something in hand: have it treated, then bring it where it belongs."""
        memory = self._memory
        if _kind(held) != self._target:
            if self._memory.place in self._memory.closed:
                return f"open {self._memory.place}"
            return f"move {held} to {self._memory.place}" if self._memory.place is not None else self._look_further()
        tool = _TOOLS.get(self._treatment)
        if tool is not None and held not in memory.treated:
            return self._at_one_of(self._of_kind(tool), f"{self._treatment} {held} with {{}}")
        if self._treatment == "look":
            lamps = [
                (thing, receptacle)
                for receptacle in memory.receptacles
                for thing in memory.contents.get(receptacle, ())
                if _kind(thing) == self._destination
            ]
            here = [thing for thing, receptacle in lamps if receptacle == memory.place]
            if here:
                return f"use {here[0]}"
            return f"go to {lamps[0][1]}" if lamps else self._look_further()
        settled = self._settled_place()
        destinations = [settled] if settled is not None else self._of_kind(self._destination)
        if memory.place in destinations and memory.place in memory.closed:
            return f"open {memory.place}"
        return self._at_one_of(destinations, f"move {held} to {{}}")

    def _at_one_of(self, receptacles: Sequence[str], command: str) -> str | None:
        """The command at one of the receptacles, or the way to the first of them; None if there is none."""
        if self._memory.place in receptacles:
            return command.format(self._memory.place)
        return f"go to {receptacles[0]}" if receptacles else None

    def _of_kind(self, kind: str) -> list[str]:
        return [receptacle for receptacle in self._memory.receptacles if _kind(receptacle) == kind]


def _kind(name: str) -> str:
    """A name without its number: "shelf" for "shelf 1"."""
    return name.rsplit(" ", 1)[0]
