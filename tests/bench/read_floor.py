"""The least time in which an H200 reads so many bytes once, with a cold L2.

Measured on the rivals' GPU, event to event, where an empty kernel takes 2.66 µs; kernel time is about 2.6 µs less.
Source: the performance contract's probes (2026-11-29)."""

EVENT_US = ((4, 5.5), (8, 6.9), (16, 9.5), (32, 13.7), (64, 22.0), (128, 38.4), (256, 70.4))  # MB, µs
OUTSIDE_THE_KERNEL_US = 2.6


def read_floor_us(byte_count):
    """Kernel time; the lines between the measured sizes, the outer ones lengthened."""
    megabytes = byte_count / 1e6
    pairs = list(zip(EVENT_US, EVENT_US[1:]))
    (a, at_a), (b, at_b) = next((pair for pair in pairs if megabytes <= pair[1][0]), pairs[-1])
    return at_a + (at_b - at_a) * (megabytes - a) / (b - a) - OUTSIDE_THE_KERNEL_US
