"""The manual's generated pages and the evidence in the package, read from the committed results; no
study.
"""
