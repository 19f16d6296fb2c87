"""Moves of the noisy-OR model: causes of a row, their activities, births, deaths and mergers."""
