"""The generated parts of the pages, one module for each subject."""
