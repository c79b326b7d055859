"""Pictures, words and pages: plain values in, files out, nothing of the other rooms needed."""
