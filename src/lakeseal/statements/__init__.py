"""SQL statements as values: what people type, cut into parts and never written anew. Pure: nothing is opened here."""
