"""A generated text shop: instructions, a catalogue, an order."""
