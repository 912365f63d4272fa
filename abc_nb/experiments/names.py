from abc_nb.specs.names import *  # noqa: F403
