"""Tools to test what is built on Lakeseal, shipped to its users: they stand beside the rooms, and no room imports them."""
