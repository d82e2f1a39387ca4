"""The commands of the program, imported when they are called."""
