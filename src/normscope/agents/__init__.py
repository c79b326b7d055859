"""The interface of NormScope for programs that act for somebody: tools of the Model Context
Protocol, each a command of ours in a process of its own.

The code that such a command runs lies in one folder; what a command has run is told beside its
answer.
"""
