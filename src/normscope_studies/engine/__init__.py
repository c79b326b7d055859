"""The engine that every study shares: claims, figures, tables, ladders of trainings, pieces and
pages.
"""
