"""Tables of the paths to satellites and platforms, by environment, band and elevation.

References
----------
3GPP TR 38.811 V15.4.0, Tables 6.6.1-1, 6.6.2-1 to 6.6.2-3, 6.6.6.2.1-1 and 6.7.2-1a to 6.7.2-6b.
"""

from __future__ import annotations

_ROWS = """
dense_urban los: 0.282 0.331 0.398 0.468 0.537 0.612 0.738 0.82 0.981
dense_urban S sf_los: 3.5 3.4 2.9 3 3.1 2.7 2.5 2.3 1.2
dense_urban S sf_nlos: 15.5 13.9 12.4 11.7 10.6 10.5 10.1 9.2 9.2
dense_urban S clutter: 34.3 30.9 29 27.7 26.8 26.2 25.8 25.5 25.5
dense_urban S k_mean: 4.4 9 9.3 7.9 7.4 7 6.9 6.5 6.8
dense_urban S k_std: 3.3 6.6 6.1 4 3 2.6 2.2 2.1 1.9
dense_urban Ka sf_los: 2.9 2.4 2.7 2.4 2.4 2.7 2.6 2.8 0.6
dense_urban Ka sf_nlos: 17.1 17.1 15.6 14.6 14.2 12.6 12.1 12.3 12.3
dense_urban Ka clutter: 44.3 39.9 37.5 35.8 34.6 33.8 33.3 33 32.9
dense_urban Ka k_mean: 6.1 13.7 12.9 10.3 9.2 8.4 8 7.4 7.6
dense_urban Ka k_std: 2.6 6.8 6 3.3 2.2 1.9 1.5 1.6 1.3
urban los: 0.246 0.386 0.493 0.613 0.726 0.805 0.919 0.968 0.992
urban S sf_los: 4 4 4 4 4 4 4 4 4
urban S sf_nlos: 6 6 6 6 6 6 6 6 6
urban S clutter: 34.3 30.9 29 27.7 26.8 26.2 25.8 25.5 25.5
urban S k_mean: 31.83 18.78 10.49 7.46 6.52 5.47 4.54 4.03 3.68
urban S k_std: 13.84 13.78 10.42 8.01 8.27 7.26 5.53 4.49 3.14
urban Ka sf_los: 4 4 4 4 4 4 4 4 4
urban Ka sf_nlos: 6 6 6 6 6 6 6 6 6
urban Ka clutter: 44.3 39.9 37.5 35.8 34.6 33.8 33.3 33 32.9
urban Ka k_mean: 40.18 23.62 12.48 8.56 7.42 5.97 4.88 4.22 3.81
urban Ka k_std: 16.99 18.96 14.23 11.06 11.21 9.47 7.24 5.79 4.25
suburban los: 0.782 0.869 0.919 0.929 0.935 0.94 0.949 0.952 0.998
suburban S sf_los: 1.79 1.14 1.14 0.92 1.42 1.56 0.85 0.72 0.72
suburban S sf_nlos: 8.93 9.08 8.78 10.25 10.56 10.74 10.17 11.52 11.52
suburban S clutter: 19.52 18.17 18.42 18.28 18.63 17.68 16.5 16.3 16.3
suburban S k_mean: 11.4 19.45 20.8 21.2 21.6 19.75 12 12.85 12.85
suburban S k_std: 6.26 10.32 16.34 15.63 14.22 14.19 5.7 9.91 9.91
suburban Ka sf_los: 1.9 1.6 1.9 2.3 2.7 3.1 3 3.6 0.4
suburban Ka sf_nlos: 10.7 10 11.2 11.6 11.8 10.8 10.8 10.8 10.8
suburban Ka clutter: 29.5 24.6 21.9 20 18.7 17.8 17.2 16.9 16.8
suburban Ka k_mean: 8.9 14 11.3 9 7.5 6.6 5.9 5.5 5.4
suburban Ka k_std: 4.4 4.6 3.7 3.5 3 2.6 1.7 0.7 0.3
troposphere: 1.08 0.48 0.30 0.22 0.17 0.13 0.12 0.12 0.12
zenith_ghz: 1 4 10 15 19 20 21 22 22.5 23 24 25 26 28 30 35 40
zenith_db: .034 .039 .052 .084 .185 .257 .373 .508 .528 .503 .409 .336 .291 .250 .243 .291 .412
"""

TABLES: dict[str, tuple[float, ...]] = {
    key: tuple(map(float, values.split()))
    for key, _, values in (row.partition(":") for row in _ROWS.strip().splitlines())
}
"""Key -> its values at elevations of 10, 20 .. 90 degrees.

By environment, they are the probability of a line of sight (los). By environment and band, they are
standard deviations of shadow fading with and without it (sf_los, sf_nlos), clutter loss, and mean
and standard deviation of the K-factor (k_mean, k_std), in dB. The tropospheric scintillation is not
exceeded for 99 % of the time. The attenuation by gases towards the zenith (zenith_db, at
zenith_ghz) is that of ITU-R P.676-10, Annex 2, at 1013 hPa, 15 degrees Celsius and 7.5 g/m^3.
"""
