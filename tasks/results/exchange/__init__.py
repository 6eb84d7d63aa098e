"""Results in the words of other tools: what they write is read, and what they read is written."""
