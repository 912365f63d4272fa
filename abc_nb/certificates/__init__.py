"""Certificates: a proof that a model is right on every problem of every length, or what it gets wrong.

contexts.py              what a certificate asks of a task: Site (width, step) -> Shape -> Block of contexts
  places.py              of numbers and lists; walks.py lists the contexts of their shapes
  text.py                of problems in a text
  tables.py, cells.py    of tables: which cells can stand together
  reach.py               which tokens a step depends on, and why finitely many widths show all shapes
  tried.py               contexts of shapes with one tree are tried once
states.py                the states that contexts lead to, each computed once; few_keys.py makes it fast
rounding.py              what rounding can change them by; sums.py proves where nothing rounds
certify.py               tries all contexts: Result of each shape -> Certificate, with the checksum.py of the weights
counterexamples.py       a problem around a wrong context
practice.py              training on wrong contexts until none is left
fingerprints.py          for calibration: whether what a step sees decides its token, whatever the weights
"""
