"""How long the report of a large night takes, and how large it is."""
