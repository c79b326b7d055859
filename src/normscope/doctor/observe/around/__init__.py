"""What is seen around a stream: tables of positions, dropouts, batch norms, and the places that are
read of it at its end.
"""
