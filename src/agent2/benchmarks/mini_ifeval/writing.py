"""The sentences of the closed world, in three languages: "the cat is red and old"."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

ADJECTIVES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "red": ("rot", "rojo", "roja"),
        "old": ("alt", "viejo", "vieja"),
        "new": ("neu", "nuevo", "nueva"),
        "small": ("klein", "pequeño", "pequeña"),
        "cold": ("kalt", "frío", "fría"),
        "fast": ("schnell", "rápido", "rápida"),
        "big": ("groß", "grande", "grande"),
        "white": ("weiß", "blanco", "blanca"),
        "black": ("schwarz", "negro", "negra"),
        "quiet": ("leise", "callado", "callada"),
    }
)
"""English -> German, Spanish of either gender."""
TOPICS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "cat": ("die Katze", "el gato"),
        "dog": ("der Hund", "el perro"),
        "bird": ("der Vogel", "el pájaro"),
        "horse": ("das Pferd", "el caballo"),
        "cow": ("die Kuh", "la vaca"),
        "tree": ("der Baum", "el árbol"),
        "house": ("das Haus", "la casa"),
        "boat": ("das Boot", "el barco"),
        "moon": ("der Mond", "la luna"),
        "river": ("der Fluss", "el río"),
        "star": ("der Stern", "la estrella"),
        "car": ("das Auto", "el coche"),
        "sheep": ("das Schaf", "la oveja"),
        "garden": ("der Garten", "el jardín"),
        "bridge": ("die Brücke", "el puente"),
        "fish": ("der Fisch", "el pez"),
    }
)
"""English noun -> German, Spanish with their articles."""
LANGUAGE_NAMES: Mapping[str, str] = MappingProxyType({"de": "German", "es": "Spanish"})


@dataclass(frozen=True, slots=True)
class Scene:
    """What a text is about."""

    topic: str
    adjectives: Sequence[str]
    """Different ones, in the order in which they are used."""

    run: int = 1
    """How many adjectives stand together, joined by "and"."""

    def sentence(self, first: int = 0, language: str = "en") -> str:
        """One sentence without its mark, starting with adjective number `first`; lower case but for German nouns."""
        if language == "de":
            return f"{TOPICS[self.topic][0]} ist {self.phrase(first, language)}"
        if language == "es":
            return f"{TOPICS[self.topic][1]} es {self.phrase(first, language)}"
        return f"the {self.topic} is {self.phrase(first)}"

    def phrase(self, first: int = 0, language: str = "en") -> str:
        """A run of adjectives, starting with number `first`."""
        chosen = [self.adjectives[(first + place) % len(self.adjectives)] for place in range(self.run)]
        if language == "de":
            return " und ".join(ADJECTIVES[one][0] for one in chosen)
        if language == "es":
            form = 2 if TOPICS[self.topic][1].startswith("la ") else 1
            return " y ".join(ADJECTIVES[one][form] for one in chosen)
        return " and ".join(chosen)
