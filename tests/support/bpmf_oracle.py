"""The formulas of BPMF written out, cell by cell, in numpy and float64."""

import numpy as np


def parts(vector, num_factors, has_bias, num_others):
    """Latent factors, bias, coefficients of the other side's features, and of those of cells."""
    end = num_factors + has_bias
    bias = vector[num_factors] if has_bias else 0.0
    return vector[:num_factors], bias, vector[end : end + num_others], vector[end + num_others :]


def mean(u, v, row, column, cell, *, num_factors, has_bias):
    """mu_ij of Table 6.1: vectors u and v, features of the row, the column and the cell."""
    u_a, u_bias, u_b, u_c = parts(u, num_factors, has_bias, len(column))
    v_a, v_bias, v_b, v_c = parts(v, num_factors, has_bias, len(row))
    return u_a @ v_a + u_bias + v_bias + u_b @ column + v_b @ row + (u_c + v_c) @ cell


def row_posterior(i, u, v, known, cells, values, prior_mean, prior_precision, tau, **shape):
    """Mean and covariance of U_i given the rest, by eq 6.25.

    mu is linear in U_i, so what meets it is the difference that each unit vector makes.
    """
    size = u.shape[1]
    precision, side = prior_precision.copy(), prior_precision @ prior_mean
    for t, (row, column) in enumerate(cells):
        if row != i:
            continue
        features = known[0][row], known[1][column], known[2][t]

        def at(vector, column=column, features=features):
            return mean(vector, v[column], *features, **shape)

        offset = at(np.zeros(size))
        met = np.array([at(unit) - offset for unit in np.eye(size)])
        precision += tau * np.outer(met, met)
        side += tau * met * (values[t] - offset)
    covariance = np.linalg.inv(precision)
    return covariance @ side, covariance


def log_normal(values, mean, covariance):
    """log N of one vector."""
    apart = values - mean
    quadratic = apart @ np.linalg.solve(covariance, apart)
    return -0.5 * (len(values) * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + quadratic)
