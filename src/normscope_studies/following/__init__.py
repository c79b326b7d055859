"""Small trainings in one process that are looked at while they go on."""
