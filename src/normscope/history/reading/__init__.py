"""Logs in the forms in which others write them: records, tables, lines pasted from a terminal."""
