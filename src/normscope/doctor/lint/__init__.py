"""The rules that look for mistakes, and what several of them need."""
