"""Files of rows in the formats that Spark reads by itself: what a file can hold, and how it is written and read."""
