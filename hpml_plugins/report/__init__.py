"""What is made from Records: figures, tables, charts, comparisons, exports and the published site."""
