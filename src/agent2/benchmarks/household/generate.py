"""Generated households in the engine's own format: sizes, layouts, games, and the openings that players read.

Tables. What may be where, what can be opened, washed, heated and cooled, and how goals are worded comes from the tables
of the alfworld package (`affordances`), read on first use, so that nothing else of agent2 needs it. Types are named as
there ("SinkBasin", "Apple"); slices of food are left out, since no generated game asks for cutting.

Sizes. `tiny` is a world that a model of under a million weights can learn in minutes; `small` and `full` are for larger
models, `full` being as large as the published games.

Layouts (`draw_layout`). Solvable by construction: the target is somewhere else than its destination, the destination
can hold it, and the tool that the task needs is in the room.

Games (`game_of`). The problem (PDDL) of a layout and its goal sentence; domain and grammar are those of the installed
engine.

Promises: one seed, one game, on every machine. Does NOT plan a solution: none is stored anywhere, so none can leak.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType

import numpy as np

from agent2.benchmarks.home import Source, pick
from agent2.environments.household.game import TASK_TYPES, Game, import_part
from agent2.errors import ConfigError, unknown_name

PICK = "pick_and_place_simple"
LOOK = "look_at_obj_in_light"
CLEAN = "pick_clean_then_place_in_recep"
HEAT = "pick_heat_then_place_in_recep"
COOL = "pick_cool_then_place_in_recep"
TWO = "pick_two_obj_and_place"
TOOLS: Mapping[str, str] = MappingProxyType({CLEAN: "SinkBasin", HEAT: "Microwave", COOL: "Fridge"})
"""The receptacle that a task type needs beside the destination."""
LAMP = "DeskLamp"
LAMP_PLACES = frozenset({"Desk", "SideTable", "Dresser", "CoffeeTable", "Shelf"})
_SLICED = "Sliced"
_START = "loc_bar_0"
"""Where the player begins; no receptacle is there."""
_MAX_DRAWS = 1000
"""After this many rooms in a row that do not suit the task, the size's settings count as wrong."""


@dataclass(frozen=True, slots=True)
class Affordances:
    """The tables that a generated game is drawn from; every collection in a fixed order."""

    receptacle_types: tuple[str, ...]
    object_types: tuple[str, ...]
    """Movable receptacles such as mugs among them."""
    holds: Mapping[str, tuple[str, ...]]
    """Receptacle type -> types of objects that fit."""
    openable: frozenset[str]
    containers: frozenset[str]
    """Types of objects that count as receptacles too, such as mugs; nothing can be put into them."""
    cleanable: frozenset[str]
    heatable: frozenset[str]
    coolable: frozenset[str]
    sliceable: frozenset[str]
    lamps: frozenset[str]
    """Types that can be switched on but not picked up."""
    goals: Mapping[str, str]
    """Task type -> PDDL of the goal with {obj}, {recep} and {toggle} to be filled in."""
    wordings: Mapping[str, tuple[str, ...]]
    """Task type -> sentences that state the goal, with the same fields."""


@cache
def affordances() -> Affordances:
    """The tables of the installed alfworld. Raises ConfigError naming the extra if it is not installed."""
    constants, goal_library = import_part("alfworld.gen.constants"), import_part("alfworld.gen.goal_library")
    movable = set(constants.MOVABLE_RECEPTACLES)
    receptacle_types = sorted(set(constants.RECEPTACLES) - movable)
    object_types = [t for t in sorted(set(constants.OBJECTS) | movable) if t not in receptacle_types]
    whole = {t for t in object_types if not t.endswith(_SLICED)}
    can = constants.VAL_ACTION_OBJECTS
    fits = constants.VAL_RECEPTACLE_OBJECTS
    return Affordances(
        receptacle_types=tuple(receptacle_types),
        object_types=tuple(object_types),
        holds=MappingProxyType({r: tuple(sorted(whole & set(fits.get(r, ())))) for r in receptacle_types}),
        openable=frozenset(constants.OPENABLE_CLASS_LIST) & frozenset(receptacle_types),
        containers=frozenset(movable),
        cleanable=frozenset(whole & set(can["Cleanable"])),
        heatable=frozenset(whole & set(can["Heatable"])),
        coolable=frozenset(whole & set(can["Coolable"])),
        sliceable=frozenset(whole & set(can["Sliceable"])),
        lamps=frozenset(can["Toggleable"]),
        goals=MappingProxyType({name: entry["pddl"].replace("#", "-") for name, entry in goal_library.gdict.items()}),
        wordings=MappingProxyType({name: tuple(entry["templates"]) for name, entry in goal_library.gdict.items()}),
    )


Counts = Mapping[str, tuple[int, int]]
"""Receptacle type -> lowest and highest number of it."""


@dataclass(frozen=True, slots=True)
class WorldSize:
    """How one size of household is drawn."""

    name: str
    task_types: tuple[str, ...]
    """Drawn from evenly."""
    rooms: Mapping[str, Counts]
    n_receptacles: tuple[int, int]
    """Lowest and highest number in a room, whatever the counts of its types would allow."""
    n_objects: tuple[int, int]
    """Lowest and highest number, target and lamp included."""
    max_copies: int
    """Most objects of one type beside the target's."""
    max_openable: int
    """Most receptacles that have to be opened to see into."""
    max_turns: int
    object_types: frozenset[str] = frozenset()
    """The only types of objects; empty: whatever the room's receptacles can hold."""


_TINY_ROOM: Counts = MappingProxyType(
    {
        "CounterTop": (0, 1),
        "DiningTable": (0, 1),
        "SideTable": (0, 2),
        "CoffeeTable": (0, 1),
        "Shelf": (0, 2),
        "Desk": (0, 1),
        "Cabinet": (0, 2),
        "SinkBasin": (0, 1),
        "Microwave": (0, 1),
    }
)
_TINY_OBJECTS = frozenset(
    ["Apple", "Bread", "Mug", "Cup", "Plate", "Bowl", "Tomato", "Potato", "Egg", "Book", "CellPhone", "KeyChain", "Pen"]
)
_ROOMS: Mapping[str, Counts] = MappingProxyType(
    {
        "Kitchen": {
            "Fridge": (1, 1),
            "Microwave": (1, 1),
            "SinkBasin": (1, 1),
            "GarbageCan": (1, 1),
            "CounterTop": (1, 3),
            "Cabinet": (2, 8),
            "Drawer": (1, 6),
            "StoveBurner": (0, 4),
            "DiningTable": (0, 2),
            "Shelf": (0, 3),
            "CoffeeMachine": (0, 1),
            "Toaster": (0, 1),
            "SideTable": (0, 1),
        },
        "Bedroom": {
            "Bed": (1, 1),
            "GarbageCan": (1, 1),
            "Desk": (1, 2),
            "SideTable": (1, 2),
            "Drawer": (2, 8),
            "Shelf": (1, 5),
            "Dresser": (0, 1),
            "Safe": (0, 1),
            "LaundryHamper": (0, 1),
            "ArmChair": (0, 1),
        },
        "LivingRoom": {
            "Sofa": (1, 1),
            "CoffeeTable": (1, 1),
            "GarbageCan": (1, 1),
            "ArmChair": (1, 2),
            "SideTable": (1, 2),
            "Drawer": (0, 4),
            "Cabinet": (0, 4),
            "Shelf": (0, 4),
            "Dresser": (0, 1),
            "DiningTable": (0, 1),
            "Ottoman": (0, 1),
            "Desk": (0, 1),
        },
        "Bathroom": {
            "SinkBasin": (1, 2),
            "Toilet": (1, 1),
            "CounterTop": (1, 1),
            "GarbageCan": (1, 1),
            "ToiletPaperHanger": (1, 1),
            "Cabinet": (2, 4),
            "Drawer": (0, 4),
            "Shelf": (0, 2),
            "HandTowelHolder": (0, 2),
            "BathtubBasin": (0, 1),
            "Cart": (0, 1),
        },
    }
)

SIZES: Mapping[str, WorldSize] = MappingProxyType(
    {
        "tiny": WorldSize(
            name="tiny",
            task_types=(PICK, LOOK, CLEAN, HEAT),
            rooms=MappingProxyType({"Room": _TINY_ROOM}),
            n_receptacles=(3, 4),
            n_objects=(3, 5),
            max_copies=2,
            max_openable=2,
            max_turns=12,
            object_types=_TINY_OBJECTS,
        ),
        "small": WorldSize(
            name="small",
            task_types=TASK_TYPES,
            rooms=_ROOMS,
            n_receptacles=(8, 13),
            n_objects=(12, 18),
            max_copies=3,
            max_openable=5,
            max_turns=30,
        ),
        "full": WorldSize(
            name="full",
            task_types=TASK_TYPES,
            rooms=_ROOMS,
            n_receptacles=(10, 26),
            n_objects=(25, 40),
            max_copies=3,
            max_openable=16,
            max_turns=50,
        ),
    }
)


def size_of(name: str) -> WorldSize:
    """A size by its name. Raises ConfigError with the nearest name for another."""
    if name not in SIZES:
        raise unknown_name("household size", name, SIZES)
    return SIZES[name]


@dataclass(frozen=True, slots=True)
class WorldObject:
    """A receptacle or an object."""

    id: str
    """As the engine's problem file names it."""
    type: str
    place: str = ""
    """Id of the receptacle that contains an object; empty for receptacles."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One household with its task."""

    task_type: str
    receptacles: tuple[WorldObject, ...]
    objects: tuple[WorldObject, ...]
    target: str
    """Type of what is to be found."""
    destination: str
    """Type of the receptacle that it is to end up in; empty for `look_at_obj_in_light`."""
    wording: int
    """Which of the task type's sentences states the goal."""

    @property
    def goal(self) -> str:
        """The sentence that states the goal, without a full stop."""
        lamp = LAMP.lower() if self.task_type == LOOK else ""
        sentence = affordances().wordings[self.task_type][self.wording]
        return sentence.format(obj=self.target.lower(), recep=self.destination.lower(), toggle=lamp)

    @property
    def canonical(self) -> str:
        """Room and goal without wording, order or places: equal for games that could be confused.

        Splits that share no canonical text share no room with the same goal, wherever the objects are.
        """
        receptacles = " ".join(sorted(receptacle.type for receptacle in self.receptacles))
        return f"{self.task_type} {self.target} {self.destination} | {receptacles}"

    def names(self) -> dict[str, str]:
        """Id -> the name that the engine shows, such as "shelf 1"; in the engine's own order."""
        return shown_names([placed.id for placed in (*self.receptacles, *self.objects)])


def shown_names(ids: Sequence[str]) -> dict[str, str]:
    """The engine's naming: ids of one kind, sorted, are numbered from how many there are down to 1."""
    ordered = sorted(ids, key=str.lower)
    # counted down, as the engine numbers objects of a kind
    next_number = Counter(_kind(id_) for id_ in ordered)
    names = {}
    for id_ in ordered:
        kind = _kind(id_)
        names[id_] = f"{kind} {next_number[kind]}"
        next_number[kind] -= 1
    return names


def _kind(id_: str) -> str:
    """What a name begins with: the engine cuts at the first "_bar_" and appends "basin" to ids that hold it."""
    lowered = id_.lower()
    return lowered.split("_bar_", 1)[0] + ("basin" if "basin" in lowered else "")


def draw_layout(rng: np.random.Generator, size: WorldSize) -> Layout:
    """A household of a size, every task type as likely as any other.

    Raises ConfigError if a size's rooms hardly ever suit its tasks, or without the alfworld package.
    """
    task_type = size.task_types[int(rng.integers(len(size.task_types)))]
    for _ in range(_MAX_DRAWS):
        layout = _try_layout(rng, size, task_type)
        if layout is not None:
            return layout
    raise ConfigError(
        f"household size {size.name!r}: no room for {task_type} in {_MAX_DRAWS} draws; "
        "allow more receptacles or other object types"
    )


def _try_layout(rng: np.random.Generator, size: WorldSize, task_type: str) -> Layout | None:
    """A layout in one random room; None if the room does not suit the task."""
    room = size.rooms[pick(rng, sorted(size.rooms))]
    types = _receptacle_types(rng, size, room, task_type)
    return None if types is None else layout_in(rng, size, types, task_type)


def layout_in(rng: np.random.Generator, size: WorldSize, types: Sequence[str], task_type: str) -> Layout | None:
    """A household in a room with receptacles of these types (sorted); None if the room does not suit the task.

    size: decides which objects it has.
    """
    tables = affordances()
    # the order of the draws below is part of every item: items, ids and splits change with it
    needed = LAMP_PLACES if task_type == LOOK else {TOOLS[task_type]} if task_type in TOOLS else set(types)
    if not needed & set(types):
        return None
    fits = {
        kind: [
            object_type
            for object_type in tables.holds[kind]
            if not size.object_types or object_type in size.object_types
        ]
        for kind in sorted(set(types))
    }
    pairs = _target_pairs(task_type, fits, tables)
    if not pairs:
        return None
    target, destination = pick(rng, pairs)
    receptacles = tuple(WorldObject(_receptacle_id(kind, place), kind) for kind, place in _numbered(types))
    placed = _placed_types(rng, size, (task_type, target, destination), receptacles, fits)
    objects = tuple(
        WorldObject(f"{kind}_bar_{number:02d}", kind, place)
        for (kind, number), place in zip(_numbered([kind for kind, _ in placed]), [p for _, p in placed], strict=True)
    )
    wording = int(rng.integers(len(tables.wordings[task_type])))
    return Layout(task_type, receptacles, objects, target, destination, wording)


def _receptacle_types(rng: np.random.Generator, size: WorldSize, room: Counts, task_type: str) -> list[str] | None:
    """Types of the room's receptacles, sorted, copies repeated; None if the task's own one cannot be there."""
    counts = Counter({kind: fewest for kind, (fewest, _) in room.items()})
    needed = [TOOLS[task_type]] if task_type in TOOLS else []
    if task_type == LOOK:
        places = sorted(kind for kind in room if kind in LAMP_PLACES)
        if not places:
            return None
        needed.append(pick(rng, places))
    for kind in needed:
        if kind not in room:
            return None
        counts[kind] = max(counts[kind], 1)
    openable = affordances().openable
    n_wanted = int(rng.integers(size.n_receptacles[0], size.n_receptacles[1] + 1))
    while counts.total() < n_wanted:
        is_full = sum(n for kind, n in counts.items() if kind in openable) >= size.max_openable
        free = [kind for kind in sorted(room) if counts[kind] < room[kind][1] and not (is_full and kind in openable)]
        if not free:
            return None
        counts[pick(rng, free)] += 1
    return sorted(counts.elements())


def _target_pairs(task_type: str, fits: Mapping[str, Sequence[str]], tables: Affordances) -> list[tuple[str, str]]:
    """Pairs of target and destination: the target fits there, can be elsewhere, and can be treated as the task asks."""
    if task_type == LOOK:
        return [
            (object_type, "")
            for object_type in sorted({object_type for types in fits.values() for object_type in types})
        ]
    treatable = {"SinkBasin": tables.cleanable, "Microwave": tables.heatable, "Fridge": tables.coolable}
    tool = TOOLS.get(task_type)
    return [
        (object_type, destination)
        for destination, object_types in fits.items()
        for object_type in object_types
        if destination != tool
        and (tool is None or object_type in treatable[tool])
        and any(object_type in held for receptacle_type, held in fits.items() if receptacle_type != destination)
    ]


def _placed_types(
    rng: np.random.Generator,
    size: WorldSize,
    task: tuple[str, str, str],
    receptacles: Sequence[WorldObject],
    fits: Mapping[str, Sequence[str]],
) -> list[tuple[str, str]]:
    """(type, id of its receptacle) of every object: targets, the lamp, and further ones; in type order."""
    task_type, target, destination = task
    fewest = 2 if task_type == TWO else 1
    n_targets = int(rng.integers(fewest, fewest + 2))
    is_away = task_type in (PICK, TWO)
    spots = [r.id for r in receptacles if target in fits[r.type] and not (is_away and r.type == destination)]
    placed = [(target, pick(rng, spots)) for _ in range(n_targets)]
    if task_type == LOOK:
        placed.append((LAMP, pick(rng, [r.id for r in receptacles if r.type in LAMP_PLACES])))
    n_wanted = max(int(rng.integers(size.n_objects[0], size.n_objects[1] + 1)), len(placed) + 1)
    others = sorted({object_type for object_types in fits.values() for object_type in object_types} - {target})
    for index in rng.permutation(len(others)):
        kind = others[int(index)]
        spots = [r.id for r in receptacles if kind in fits[r.type]]
        n_copies = min(int(rng.integers(1, size.max_copies + 1)), n_wanted - len(placed))
        placed += [(kind, pick(rng, spots)) for _ in range(n_copies)]
        if len(placed) >= n_wanted:
            break
    return sorted(placed, key=lambda pair: pair[0])


def _numbered(types: Sequence[str]) -> list[tuple[str, int]]:
    """Each type with the number of its earlier occurrences."""
    counts: Counter[str] = Counter()
    numbered = []
    for kind in types:
        numbered.append((kind, counts[kind]))
        counts[kind] += 1
    return numbered


def _receptacle_id(kind: str, number: int) -> str:
    """An id that the engine shows as `kind`; basins are named in two parts as in the published games."""
    if kind.endswith("Basin"):
        return f"{kind.removesuffix('Basin')}_bar_{number:02d}_bar_{kind}"
    return f"{kind}_bar_{number:02d}"


def draw_game(rng: np.random.Generator, size: WorldSize) -> Game:
    """A game of a size. Raises ConfigError without the alfworld package."""
    return game_of(draw_layout(rng, size))


def source_of(size: WorldSize) -> Source[Layout]:
    """The splits of a size: no two share a room with the same goal, and no split says the same opening twice."""
    name = "household" if size.name == "tiny" else f"household_{size.name}"
    return Source(name, partial(draw_layout, size=size), lambda layout: layout.canonical, opening)


def game_of(layout: Layout) -> Game:
    """The game of a layout."""
    return Game(task_type=layout.task_type, goal=layout.goal, problem=problem_of(layout))


def opening(layout: Layout) -> str:
    """What a player reads first, worded as by the engine."""
    names = layout.names()
    ids = {receptacle.id for receptacle in layout.receptacles}
    return (
        "You are in the middle of a room. Looking quickly around you, you see "
        f"{listed([name for id_, name in names.items() if id_ in ids])}.\n\nYour task is to: {layout.goal}."
    )


def listed(names: list[str]) -> str:
    """Names as the engine lists them: "a mug 1, a pen 2, and a pen 1", or "nothing"."""
    parts = [f"a {name}" for name in names]
    if len(parts) > 1:
        return f"{', '.join(parts[:-1])}, and {parts[-1]}"
    return parts[0] if parts else "nothing"


def problem_of(layout: Layout) -> str:
    """The layout as a PDDL problem of the engine's domain."""
    tables = affordances()
    places = {receptacle.id: f"loc_bar_{index}" for index, receptacle in enumerate(layout.receptacles, start=1)}
    declared = [
        "agent1 - agent",
        *(f"{kind}Type - otype" for kind in tables.object_types),
        *(f"{kind}Type - rtype" for kind in tables.receptacle_types),
        *(f"{placed.id} - object" for placed in layout.objects),
        *(f"{receptacle.id} - receptacle" for receptacle in layout.receptacles),
        *(f"{place} - location" for place in (_START, *places.values())),
    ]
    facts = [f"(atLocation agent1 {_START})", *_receptacle_facts(layout, tables, places)]
    facts += _object_facts(layout, tables, places)
    goal = tables.goals[layout.task_type].format(
        obj=layout.target, recep=layout.destination, toggle=LAMP if layout.task_type == LOOK else ""
    )
    lines = ["(define (problem household)", "(:domain alfred)", "(:objects", *declared, ")", "(:init", *facts, ")"]
    return "\n".join([*lines, goal.strip()]) + "\n"


def _receptacle_facts(layout: Layout, tables: Affordances, places: dict[str, str]) -> list[str]:
    facts = []
    for receptacle in layout.receptacles:
        facts.append(f"(receptacleType {receptacle.id} {receptacle.type}Type)")
        facts.append(f"(receptacleAtLocation {receptacle.id} {places[receptacle.id]})")
        if receptacle.type in tables.openable:
            facts.append(f"(openable {receptacle.id})")
    present = {placed.type for placed in layout.objects}
    for kind in sorted({receptacle.type for receptacle in layout.receptacles}):
        facts += [f"(canContain {kind}Type {held}Type)" for held in tables.holds[kind] if held in present]
    return facts


def _object_facts(layout: Layout, tables: Affordances, places: dict[str, str]) -> list[str]:
    properties = {
        "cleanable": tables.cleanable,
        "heatable": tables.heatable,
        "coolable": tables.coolable,
        "sliceable": tables.sliceable,
        "toggleable": tables.lamps,
        "isReceptacleObject": tables.containers,
    }
    facts = []
    for placed in layout.objects:
        facts.append(f"(objectType {placed.id} {placed.type}Type)")
        facts.append(f"(inReceptacle {placed.id} {placed.place})")
        facts.append(f"(objectAtLocation {placed.id} {places[placed.place]})")
        if placed.type not in tables.lamps:
            facts.append(f"(pickupable {placed.id})")
        facts += [f"({name} {placed.id})" for name, kinds in properties.items() if placed.type in kinds]
    return facts
