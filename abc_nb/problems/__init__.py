"""What a problem is: rules, tasks, layouts, and problems that are drawn or typed. The sum 12+34 on its way to a model:

    >>> task = Task("addition")                        # tasks.py: a rule of catalogue.py, by its name
    >>> task.rule.step(0, 8, 7)                        # rules.py: carry 0, digits 8 and 7, to a digit and a carry
    (5, 1)
    >>> operands = task.read("12+34")                  # notation.py: digits, the units first
    >>> [digits.tolist() for digits in operands]
    [[[2, 1]], [[4, 3]]]
    >>> layout = task.layout(3)                        # layouts.py: where tokens stand, for numbers of three places
    >>> operands = task.widen(operands, 3)
    >>> "".join(task.text(task.source(operands, layout)[0].tolist()))  # what a model is given
    '$012+034&'
    >>> "".join(task.text(task.target(operands, layout)[0].tolist()))  # what it writes, the units first
    '$640&'

`Sampler` (sampling.py) draws such problems, and `Batch` has their tokens. All files here are loaded, and a rule under
`@known_as` can be called by its name.
"""

from abc_nb.common.config import import_modules

import_modules(__name__, __path__)
