"""What exists for a compiler or for single precision. Models would be right without it.

| module | what | plain form | test |
| --- | --- | --- | --- |
| `fusion` | a loop as one CPU kernel | the loop without the request | `test_compiled_sweeps` |
| `fusion_probe` | whether this jaxlib does it rightly (`fusion_trial`) | | `test_fusion_probe` |
| `tables` | cells of tables inside a loop, draws by weights | `table.at[i].add` | `test_tables` |
| `linalg` | many small eliminations | `slogdet`, `solve` | `test_linalg` |
| `token_draw` | topics of tokens as one kernel of a GPU | `num_wrong` | `test_token_draw` |
| `special` | draws that compile slowly | those of `jax.random`, in distribution | `test_special` |
| `compensated` | sums and changes over many cells | the same in float64 | `test_precision` |
"""
