"""Two of anything recorded, their differences, and what follows from them."""
