"""Gradients of the lower layers: appendix F of the paper."""
