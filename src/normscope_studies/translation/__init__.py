"""The trainings that figures 2, 4 and 6 share: translation runs that differ in placement,
optimiser, rate and schedule alone.
"""
