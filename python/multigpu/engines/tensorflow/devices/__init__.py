"""Which devices there are, and the plan of which of them do what."""
