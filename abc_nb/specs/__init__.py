"""What determines a run. The words for it, from what people type to what is stored:

    experiment  "addition-abc"                     what people type: a task and a model, which names.py takes apart
    Name        Name("addition", "abc", base=10)   the same in parts
    Model       models_of(task)["abc"]             a row of the table in models.py: how models of this name are made
    profile     "quick"                            the size of models and trainings, in recipes.py
    Spec        spec("addition-abc", "quick")      all that determines a run but its seed: data, model, training, parent
    digest      spec(...).digest                   a short name of all these values, and changes with each
    key         spec(...).key(seed=0)              the name of one run, with which runs/store.py finds it
    Run         load("addition-abc", seed=0)       what a training left: record, tables and weights

A model that comes from another has a `parent`: `abc` goes on from `abc-unpractised`, which has the lines of `vanilla`.
"""
