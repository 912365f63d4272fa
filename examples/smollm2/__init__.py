"""An existing language model that is given exact answers: a path of their own for the tokens of problems."""
