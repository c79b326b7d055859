"""What files and settings may ask for: depth, numbers, sizes and memory, checked before anything is built."""
