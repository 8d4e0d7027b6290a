/* SPDX-License-Identifier: GPL-2.0 */
// The buckets of log-linear histograms: 2^SUB_BUCKET_BITS an octave. Whoever includes this says how many that is.
#pragma once

static __always_inline __u32 log2_of(__u64 value)
{
	__u32 bits = 0;

	if (value >> 32) { bits += 32; value >>= 32; }
	if (value >> 16) { bits += 16; value >>= 16; }
	if (value >> 8) { bits += 8; value >>= 8; }
	if (value >> 4) { bits += 4; value >>= 4; }
	if (value >> 2) { bits += 2; value >>= 2; }
	return bits + (__u32)(value >> 1);
}

static __always_inline __u32 bucket_index(__u64 value)
{
	__u32 shift;

	if (value < (1 << SUB_BUCKET_BITS))
		return value;
	shift = log2_of(value) - SUB_BUCKET_BITS;
	return ((shift + 1) << SUB_BUCKET_BITS) + ((value >> shift) & ((1 << SUB_BUCKET_BITS) - 1));
}
