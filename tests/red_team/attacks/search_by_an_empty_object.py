"""Turn the provider's web search on with an object that says nothing more."""

from red_team.providers import body_moves, keeps

AIM = "a search of the web without a network"
DEFENCE = "the field is refused whatever its value"

attempt, control = body_moves(b'{"model":"m","messages":[],"web_search_options":{}}', keeps("web_search_options"))
