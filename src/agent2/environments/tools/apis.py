"""APIs and functions over a small made-up world.

Pure functions over a small made-up world: prices, stocks, distances, weather, areas.

All results follow from the tables below, so a call can be executed and its result compared (executable accuracy)
apart from how it was written (AST match): `distance(Oslo,Rome)` and `distance(Rome,Oslo)` give the same number.

APIs that must be found before they can be called, two of which change something.

`search(keyword)` reveals the API of one capability: its name and its parameters' names differ from item to item, so
they cannot be known beforehand. An API that was not revealed is an unknown tool. `order` fills a cart and `book` a
list of bookings; whether a task was done is read from these lists, not from what the model says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from agent2.environments.tools.calls import Parameter, Permission, ToolCall, ToolSpec
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


SEARCH = ToolSpec("search", (Parameter("keyword", "string"),))
PREFIXES = ("fast", "open", "city", "data", "prime", "next")
"""An API is called `<prefix>_<capability>`."""
ACTIONS = ("order", "book")
CAPABILITIES = ("price", "stock", "distance", "weather", "hour", *ACTIONS)

_NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "item": ("item", "product"),
        "count": ("count", "amount"),
        "start": ("start", "origin"),
        "end": ("end", "target"),
        "city": ("city", "place"),
        "day": ("day", "date"),
        "later": ("later", "hours"),
    }
)
"""What a parameter may be called."""

_ACTION_PARAMETERS = {
    "order": (Parameter("item", "string"), Parameter("count", "integer")),
    "book": (Parameter("city", "string"), Parameter("day", "string")),
}


@dataclass(frozen=True, slots=True)
class Api:
    """The API of one capability, as one item has it."""

    capability: str
    prefix: str
    dialect: int
    """0 or 1: which of its two names each parameter has."""

    @property
    def spec(self) -> ToolSpec:
        """Name, parameters and permission."""
        plain = _ACTION_PARAMETERS.get(self.capability) or FUNCTIONS[self.capability].spec.parameters
        parameters = tuple(Parameter(self.renamed(p.name), p.kind) for p in plain)
        is_action = self.capability in ACTIONS
        permission = Permission.RECORD_CHANGES if is_action else Permission.READING
        return ToolSpec(f"{self.prefix}_{self.capability}", parameters, permission, changes_state=is_action)

    def renamed(self, parameter: str) -> str:
        """What a parameter of the capability is called here."""
        return _NAMES[parameter][self.dialect]

    def call(self, arguments: Mapping[str, JsonValue]) -> ToolCall:
        """The call with these arguments, given under the capability's own parameter names."""
        return ToolCall(self.spec.name, {self.renamed(name): value for name, value in arguments.items()})


def api_of(item: Item, capability: str) -> Api:
    """The API that an item has for a capability; only that of the task itself varies."""
    payload = item.payload
    if capability == payload["capability"]:
        return Api(capability, payload["prefix"], payload["dialect"])
    return Api(capability, PREFIXES[0], 0)


class ApiToolbox:
    """`search`, and every API that it revealed."""

    def __init__(self, item: Item) -> None:
        self._apis = {capability: api_of(item, capability) for capability in CAPABILITIES}
        self._found: dict[str, Api] = {}
        self._cart: list[list[JsonValue]] = []
        self._bookings: list[list[JsonValue]] = []

    def specs(self) -> Mapping[str, ToolSpec]:
        """`search` and what was found."""
        return {SEARCH.name: SEARCH, **{name: api.spec for name, api in self._found.items()}}

    def danger_of(self, call: object) -> None:
        """Nothing here is dangerous."""

    def run(self, name: str, arguments: Mapping[str, JsonValue]) -> JsonValue:
        """The signature that a search found, or the result of an API. Raises ToolRefusal."""
        if name == SEARCH.name:
            api = self._apis.get(str(arguments["keyword"]))
            if api is None:
                raise ToolRefusal(f"nothing about {shown(arguments['keyword'])}")
            self._found[api.spec.name] = api
            return api.spec.signature
        api = self._found[name]
        plain = {parameter: arguments[api.renamed(parameter)] for parameter in _plain_names(api)}
        if api.capability in ACTIONS:
            return self._act(api.capability, plain)
        return FUNCTIONS[api.capability].run(plain)

    def is_over(self) -> bool:
        """Never by itself: the final answer ends it."""
        return False

    def state(self) -> Mapping[str, JsonValue]:
        """`found` (names), `cart` ([item, count] each), `bookings` ([city, day] each)."""
        return {"found": sorted(self._found), "cart": list(self._cart), "bookings": list(self._bookings)}

    def _act(self, capability: str, given: Mapping[str, JsonValue]) -> str:
        if capability == "order":
            if given["item"] not in ITEMS or not 1 <= given["count"] <= 99:
                raise ToolRefusal("no such order")
            self._cart.append([given["item"], given["count"]])
        else:
            if given["city"] not in CITIES or given["day"] not in DAYS:
                raise ToolRefusal("no such booking")
            self._bookings.append([given["city"], given["day"]])
        return "done"


def _plain_names(api: Api) -> list[str]:
    plain = _ACTION_PARAMETERS.get(api.capability) or FUNCTIONS[api.capability].spec.parameters
    return [parameter.name for parameter in plain]
