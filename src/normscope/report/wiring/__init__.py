"""The wiring diagram of a placement, on a terminal and as SVG."""
