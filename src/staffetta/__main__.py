"""`python -m staffetta` is the command `staffetta`."""

from staffetta.cli.main import main

if __name__ == "__main__":
    main()
