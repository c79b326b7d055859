"""DeepNorm trained at a hundred blocks and at a thousand, beside Post-LN and Pre-LN that deep."""
