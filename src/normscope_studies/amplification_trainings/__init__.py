"""Does what an update changes foretell the training: whether it diverges, the largest rate, where the loss ends?"""

from ..engine.discovery import About

ABOUT = About(
    title="Does the change by an update foretell the training?",
    question="How well does the change of the output by the first update, predicted from the formula or measured, "
    "foretell whether a training is stuck, the largest rate that trains, and the loss at its end? And does the "
    "doctor's advice hold on trainings that it was not fitted to?",
    help="Does that effect foretell how a training goes?",
)
