"""How far small changes of all weights move a stack, and what its Jacobian makes of its inputs."""
