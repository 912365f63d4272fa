"""`python -m abc_nb` is the same as `abc-nb`."""

from abc_nb.cli import main

raise SystemExit(main())
