"""The gallery's commands: `NAME.py` is the command NAME, its function `command`, which imports when it runs."""
