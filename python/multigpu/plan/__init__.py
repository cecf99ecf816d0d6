"""The user's arguments, parsed once: devices by name, groups, flags."""
