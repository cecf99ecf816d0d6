"""Parse the user's arguments once: devices by name, groups, flags."""
