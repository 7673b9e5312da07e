"""The home of `replies`: open instructions, judged by preferences that follow from the installation secret."""
