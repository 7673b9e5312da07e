"""`python -m agent2` is the command line."""

from agent2.cli import main

if __name__ == "__main__":
    main()
