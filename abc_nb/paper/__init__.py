"""The paper's own things: its claims and tables beside this project's results, captions, the report."""
