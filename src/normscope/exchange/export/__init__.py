"""Our weights in the layouts of other libraries, one file a layout."""
