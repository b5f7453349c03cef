// What vecadd.cpp and vecadd.cu share: their inputs, and the checksum of their result. cpu.py has both for NumPy.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// The i-th element of the vector `which` (0 or 1): 24 bits of a hash, exact in float32, in [0, 1).
// The mixer is Wellons's lowbias32, "Prospecting for Hash Functions", 2018.
static float element(uint32_t i, uint32_t which, uint32_t seed) {
    uint32_t x = 2 * i + which + seed * 0x9E3779B9u;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    x ^= x >> 16;
    return static_cast<float>(x >> 8) * (1.0f / 16777216.0f);
}

// Every bit of every element counts, and so does its place: sum of bits(c[i]) * (2 i + 1), modulo 2^64.
static uint64_t checksum(const float* c, size_t elements) {
    uint64_t sum = 0;
    for (size_t i = 0; i < elements; ++i) {
        uint32_t bits;
        std::memcpy(&bits, c + i, sizeof bits);
        sum += bits * (2 * static_cast<uint64_t>(i) + 1);
    }
    return sum;
}
