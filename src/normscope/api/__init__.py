"""The public interface of `import normscope`; its names are listed in `normscope.__all__` and in
the manual's page on Python.
"""
