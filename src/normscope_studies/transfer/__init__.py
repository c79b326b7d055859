"""Whether a learning rate that was tuned on a small model suits a wider or deeper one."""

from ..engine.discovery import About

ABOUT = About(
    title="Does a tuned learning rate carry over to wider and deeper models?",
    question="Under which placement do the first updates change a model as much whatever its width and depth, and does "
    "the best learning rate stay where it is?",
    help="Does the best rate carry over to other sizes?",
)
