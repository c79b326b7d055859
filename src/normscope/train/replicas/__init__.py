"""One training in several processes, each with the whole model: who they are, and how their gradients become one."""

from .group import ALONE as ALONE
from .group import Group as Group
from .group import PeerLost as PeerLost
from .joining import joined as joined
from .joining import own_device as own_device
