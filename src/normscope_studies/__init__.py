"""The paper's experiments and ours: each module with an ABOUT is a study, and none is imported by the tool."""
