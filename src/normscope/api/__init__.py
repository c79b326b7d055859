"""What `import normscope` offers; the names are listed in `normscope.__all__` and in the manual's
page on Python.
"""
