"""Tables, curves, heat maps, explorers, notebooks."""
