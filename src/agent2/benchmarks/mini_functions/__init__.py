"""Function calling in one turn, the embedded counterpart of BFCL: choose a function, fill its arguments."""
