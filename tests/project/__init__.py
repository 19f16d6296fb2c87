"""The project itself: words, imports, signatures, pages, benchmarks."""
