"""Spikes made on purpose, and whether the doctor finds, dates and explains them."""

from ..engine.discovery import About

ABOUT = About(
    title="Spikes made on purpose",
    question="Does the doctor find a spike or a plateau in a training's log, date it within five updates, and name the "
    "sub-layer and the cause; and is it silent about healthy trainings?",
    help="Does the doctor find spikes made on purpose?",
)
