"""What the notebooks need and a cell is too small for: processes to kill, crashes, loads, views."""
