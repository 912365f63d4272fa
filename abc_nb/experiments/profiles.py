from abc_nb.specs.recipes import *  # noqa: F403
