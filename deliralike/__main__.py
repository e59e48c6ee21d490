"""``python -m deliralike``."""

from deliralike.cli import main

if __name__ == "__main__":
    main()
