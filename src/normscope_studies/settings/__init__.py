"""Models and batches that several studies measure."""
