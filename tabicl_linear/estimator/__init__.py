"""The scikit-learn classifier and its preprocessing."""
