"""The paper's experiments and ours: each module with a STUDY is one, and none is imported by the
tool.
"""
