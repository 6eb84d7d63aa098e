"""The report's plots, one file for each thing that is shown; `chart` draws them all."""
