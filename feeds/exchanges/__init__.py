"""A module for each exchange and protocol: messages, book rules, session; and the books they share."""
