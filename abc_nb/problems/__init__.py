"""Rules, tasks, layouts, sampled and typed problems. The files here are loaded, and rules under `@named` known by name.

`rules` says what a rule is, and `catalogue` has this project's.
"""

from abc_nb.common.config import import_modules

import_modules(__name__, __path__)
