"""Certificates: a proof that a model is right on every problem of every length, or what it gets wrong.

For example, Parity writes after each bit whether the number of ones so far is odd. Under ABS's window, in two layers, a
step depends on its own bit, the bit before and the last three outputs. A `Site` is a step in problems of one width. All
sites in the middle have one `Shape`, whose leaves are these five tokens. The 16 ways in which they can occur are its
contexts, kept together in a `Block` with the token that is right in each. In each context a model has a margin, by how
much the logit of the right token leads. With the shapes at both ends there are 54 contexts.

contexts.py              what a certificate asks of a task: Site (width, step) -> Shape -> Block of contexts
  places.py              of numbers and lists; automaton_walks.py lists their contexts
  text.py                of problems in a text
  tables.py              of tables; table_relations.py: which cells can stand together
  reach.py               which tokens a step depends on, and why finitely many widths show all shapes
  tried.py               contexts of shapes with one tree are tried once
states.py                the states that contexts lead to, each computed once; few_keys.py makes it fast
rounding.py              what rounding can change them by; exact_sums.py proves where nothing rounds
certify.py               tries all contexts: Result of each shape -> Certificate, with the checksum.py of the weights
counterexamples.py       a problem around a wrong context
practice.py              training on wrong contexts until none is left
fingerprints.py          for calibration: whether what a step sees decides its token, whatever the weights
"""
