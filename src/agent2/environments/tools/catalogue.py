"""Pure functions over a small made-up world: prices, stocks, distances, weather, areas.

All results follow from the tables below, so a call can be executed and its result compared (executable accuracy)
apart from how it was written (AST match): `distance(Oslo,Rome)` and `distance(Rome,Oslo)` give the same number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent2.environments.tools.spec import Parameter, ToolSpec
from agent2.environments.tools.world import ToolRefusal
from agent2.errors import shown
from agent2.records import Item, JsonValue

ITEMS = ("lamp", "chair", "vase", "mirror", "shelf", "carpet", "desk", "clock")
CITIES = ("Oslo", "Rome", "Cairo", "Lima", "Delhi", "Paris", "Quito", "Tokyo")
DAYS = ("today", "Monday", "Tuesday", "Friday", "Sunday")
CURRENCIES = ("euro", "dollar", "yen")

_UNIT_PRICES = dict(zip(ITEMS, (7, 12, 5, 9, 15, 8, 20, 6), strict=True))
_STOCKS = dict(zip(ITEMS, (14, 3, 25, 8, 31, 6, 17, 42), strict=True))
_PLACES = dict(zip(CITIES, (3, 11, 20, 34, 41, 57, 68, 92), strict=True))
_HOURS = dict(zip(CITIES, (12, 13, 14, 6, 17, 11, 5, 20), strict=True))
_RATES = dict(zip(CURRENCIES, (2, 3, 9), strict=True))
_SKIES = ("sun", "rain", "snow", "fog", "wind", "hail", "cloud")


@dataclass(frozen=True, slots=True)
class CatalogueFunction:
    """One function."""

    spec: ToolSpec
    run: Callable[[Mapping[str, JsonValue]], JsonValue]
    """Arguments that fit the spec, defaults filled in, to the result. Raises ToolRefusal for an unknown entity."""


def _looked_up(table: Mapping[str, int], arguments: Mapping[str, JsonValue], name: str) -> int:
    value = arguments[name]
    if value not in table:
        raise ToolRefusal(f"no {name} {shown(value)}")
    return table[value]


def _weather(arguments: Mapping[str, JsonValue]) -> str:
    if arguments["day"] not in DAYS:
        raise ToolRefusal(f"no day {shown(arguments['day'])}")
    return _SKIES[(_looked_up(_PLACES, arguments, "city") + 3 * DAYS.index(arguments["day"])) % len(_SKIES)]


def _function(
    name: str, parameters: Mapping[str, str], run: Callable[[Mapping[str, JsonValue]], JsonValue], **defaults: str
) -> CatalogueFunction:
    specs = tuple(Parameter(parameter, kind, defaults.get(parameter)) for parameter, kind in parameters.items())
    return CatalogueFunction(ToolSpec(name, specs), run)


FUNCTIONS: Mapping[str, CatalogueFunction] = MappingProxyType(
    {
        function.spec.name: function
        for function in (
            _function(
                "price",
                {"item": "string", "count": "integer"},
                lambda given: _looked_up(_UNIT_PRICES, given, "item") * given["count"],
            ),
            _function(
                "stock",
                {"item": "string", "city": "string"},
                lambda given: (_looked_up(_STOCKS, given, "item") + _looked_up(_PLACES, given, "city")) % 50,
            ),
            _function(
                "distance",
                {"start": "string", "end": "string"},
                lambda given: abs(_looked_up(_PLACES, given, "start") - _looked_up(_PLACES, given, "end")),
            ),
            _function("weather", {"city": "string", "day": "string"}, _weather, day="today"),
            _function(
                "area", {"width": "integer", "height": "integer"}, lambda given: given["width"] * given["height"]
            ),
            _function(
                "edge", {"width": "integer", "height": "integer"}, lambda given: 2 * (given["width"] + given["height"])
            ),
            _function(
                "convert",
                {"amount": "integer", "currency": "string"},
                lambda given: given["amount"] * _looked_up(_RATES, given, "currency"),
            ),
            _function(
                "hour",
                {"city": "string", "later": "integer"},
                lambda given: (_looked_up(_HOURS, given, "city") + given["later"]) % 24,
            ),
        )
    }
)


class FunctionToolbox:
    """The functions that an item offers (`payload["tools"]`); nothing changes."""

    def __init__(self, item: Item) -> None:
        self._functions = {name: FUNCTIONS[name] for name in item.payload["tools"]}

    def specs(self) -> Mapping[str, ToolSpec]:
        """The offered functions."""
        return {name: function.spec for name, function in self._functions.items()}

    def danger_of(self, call: object) -> None:
        """Nothing here is dangerous."""

    def run(self, name: str, arguments: Mapping[str, JsonValue]) -> JsonValue:
        """The function's result. Raises ToolRefusal for an unknown entity."""
        return self._functions[name].run(arguments)

    def is_over(self) -> bool:
        """Never by itself."""
        return False

    def state(self) -> Mapping[str, JsonValue]:
        """Empty: functions leave no trace."""
        return {}
