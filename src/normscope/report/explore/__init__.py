"""The part of a page that is explored: charts as values, their script, and how both are set into the page."""
