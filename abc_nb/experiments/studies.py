from abc_nb.specs.studies import *  # noqa: F403
