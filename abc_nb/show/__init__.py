"""Tables, curves, heat maps, explorers, notebooks, the report."""
