"""What the user asked for, parsed once: devices by name, groups, flags."""
