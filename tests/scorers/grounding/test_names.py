"""Which capitalised words are names, and which only begin something."""

import pytest

from agent2.scorers.grounding.claims import ClaimKind, GroundingContext, claims_of
from agent2.scorers.grounding.names import names_of


def names(text):
    return [name.text for name in names_of(text)]


def unsupported(text, *given):
    context = GroundingContext()
    for piece in given:
        context.add(piece)
    return [claim.text for claim in claims_of(text) if claim.kind is ClaimKind.NAME and not context.supports(claim)]


@pytest.mark.parametrize(
    "text",
    [
        "Additionally, the fare is not refundable.",
        "Now, let's proceed with the change.",
        "Unfortunately, it was too late.",
        "Yesterday was too late, and tomorrow is too early.",
        "Considering the price, it is cheap.",
        "- **Duration:** Approximately 2 hours",
        "from here to there (Approximately 2 hours)",
        "### Price Calculation\nit follows",
        "## Zusammenfassung Der Reise\nit follows",
        "**Payment Distribution:** as agreed",
        "1. Cancellation of the trip\n2. Refund of the rest",
        "Payment is due. Payments are due. Booking was easy.",
        "- One Checked Bag Added",
    ],
)
def test_what_begins_a_sentence_a_line_a_heading_or_a_value_is_no_name(text):
    assert unsupported(text, "the bag") == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Zorbo is the capital.", "Zorbo"),
        ("It was founded by Oren Blake.", "Oren Blake"),
        ("Additionally, Zorbo Hall is closed.", "Zorbo Hall"),
        ("- **Teacher:** Oren", "Oren"),
        ("Oren, the baker, lives there.", "Oren"),
        ("- Zorbo Depot\n- the rest", "Zorbo Depot"),
        ("Kelly is at the desk.", "Kelly"),
        ("Zanzibar Foundation paid for it.", "Zanzibar Foundation"),
        ("### Results\nThe winner is Mira Stone.", "Mira Stone"),
        ("Zorbo", "Zorbo"),
    ],
)
def test_a_name_stays_one_wherever_it_stands(text, name):
    assert name in names(text)
    assert unsupported(text, "who lives there, and who paid?")


def test_the_name_beside_a_code_that_was_given_spells_it_out():
    assert unsupported("You fly from Newark (EWR) to Los Angeles (LAX).", "EWR to LAX") == []
    assert unsupported("You fly from Newark (EWR) to Los Angeles (LAX).", "EWR to SFO") == ["Los Angeles"]
    assert unsupported("You fly to Los Angeles.", "EWR to LAX") == ["Los Angeles"]
