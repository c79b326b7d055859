"""Every claim of the paper on one page, with what the studies found of it."""

from ..engine.discovery import About

ABOUT = About(
    title="The paper's claims, one by one",
    question="What does Xiong et al. 2020 claim, where, and with which value; and what came of each claim when a "
    "study measured it?",
    help="What came of every claim of the paper?",
)
