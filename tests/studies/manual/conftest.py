"""What theory says of a case is computed once a process, as in the tests of choosing."""

from choosing.conftest import theory_once

__all__ = ["theory_once"]
