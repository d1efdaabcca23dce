"""What a recording says once it is read: what stands, in columns, in numbers, as it grows."""
