"""Short texts under one or two verifiable instructions, the embedded counterpart of IFEval."""
