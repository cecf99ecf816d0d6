"""What every room may use: arguments, tables, attributes replaced for a while. It knows no model and no device."""
