"""What turnwright costs beside a loop written by hand. Rule: both do the same work, in the same run, in turns."""
