"""What people can try things with: stores that fail on demand, and servers for an hour."""
