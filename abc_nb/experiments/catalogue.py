from abc_nb.specs.models import *  # noqa: F403
