"""Tools to test what is built on Lakeseal, for its users too: they stand beside the rooms, and no room imports them."""
