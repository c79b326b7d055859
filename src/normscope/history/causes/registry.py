"""All patterns, the most particular first: the first that fits names the cause."""

from . import batch, clip, collapse, epsilon, logits, rate

CAUSES = (clip.CAUSE, epsilon.CAUSE, collapse.CAUSE, batch.CAUSE, logits.CAUSE, rate.CAUSE)
