"""The speed of a run on this machine, and the machine's row of the table by which attention chooses."""
