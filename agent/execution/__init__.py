"""How updates run; nothing here knows an algorithm."""
