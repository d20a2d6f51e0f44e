"""The fused Gated DeltaNet decode op and its kernels."""
