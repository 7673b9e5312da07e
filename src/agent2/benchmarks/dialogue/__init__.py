"""Two wishes of a customer, settled by talking, looking up and changing records."""
