"""Norms on the queries and keys of a model that exists: what makes these is a module, and what it
gives is normed before anything else reads it.

Which matrix makes queries and which makes keys is told by the doctor, of packed ones row by row;
and it reads the result, in which both have to be normed as was asked.
"""

from .adding import add_norms as add_norms
from .attending import take_norms as take_norms
