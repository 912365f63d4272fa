"""Rules, tasks, layouts, sampled and typed problems. All files here are loaded; a rule under `@known_as` has a name.

`rules` says what a rule is, and `catalogue` has this project's.
"""

from abc_nb.common.config import import_modules

import_modules(__name__, __path__)
