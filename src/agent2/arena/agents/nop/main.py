"""Does nothing and says so."""


def main() -> None:
    """End at once."""
    print("nop: nothing was trained and nothing is submitted")


if __name__ == "__main__":
    main()
