"""Rules, tasks, layouts, sampled and typed problems. `rules` says what a task is, `library` has this project's."""

from abc_nb.problems import direct, library  # noqa: F401 (their rules are known by name)
