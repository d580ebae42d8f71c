/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* SipHash-2-4 (Aumasson and Bernstein, 2012) over whole 64-bit words. */
#ifndef TIDEGATE_SIPHASH_H
#define TIDEGATE_SIPHASH_H

struct siphash {
    __u64 v0, v1, v2, v3;
};

#define ROTATE(word, by) (((word) << (by)) | ((word) >> (64 - (by))))

static __always_inline void siphash_round(struct siphash *s)
{
    s->v0 += s->v1;
    s->v1 = ROTATE(s->v1, 13) ^ s->v0;
    s->v0 = ROTATE(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = ROTATE(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = ROTATE(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = ROTATE(s->v1, 17) ^ s->v2;
    s->v2 = ROTATE(s->v2, 32);
}

static __always_inline void siphash_start(struct siphash *s, __u64 low, __u64 high)
{
    s->v0 = low ^ 0x736f6d6570736575ull;
    s->v1 = high ^ 0x646f72616e646f6dull;
    s->v2 = low ^ 0x6c7967656e657261ull;
    s->v3 = high ^ 0x7465646279746573ull;
}

static __always_inline void siphash_absorb(struct siphash *s, __u64 word)
{
    s->v3 ^= word;
    siphash_round(s);
    siphash_round(s);
    s->v0 ^= word;
}

static __always_inline __u64 siphash_finish(struct siphash *s, __u64 bytes)
{
    siphash_absorb(s, bytes << 56);
    s->v2 ^= 0xff;
    siphash_round(s);
    siphash_round(s);
    siphash_round(s);
    siphash_round(s);
    return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
