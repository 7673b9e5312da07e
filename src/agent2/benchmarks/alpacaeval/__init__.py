"""The home of `alpacaeval`: AlpacaEval 2 on the official files, with its annotator."""
