"""What the study of the lemmas says of its measurements: one file a lemma, each verdict computed."""
