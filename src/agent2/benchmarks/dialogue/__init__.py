"""Two wishes of a user, settled by talking, looking up and changing records."""
