"""Where texts come from: lines, JSON lines, Parquet, and the folders of Hugging Face `datasets`."""
