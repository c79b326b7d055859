"""One file a foreign library, imported where it is used."""
