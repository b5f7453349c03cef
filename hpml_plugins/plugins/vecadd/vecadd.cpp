// c = a + b of float32 vectors, timed from inside.
//
// vecadd ELEMENTS SEED BUDGET FEWEST MOST
//
// Adds once untimed, then again and again until BUDGET seconds have passed and at least FEWEST, at most MOST additions
// are timed. Prints one line of JSON: the seconds of each, and a checksum of c that the caller holds against its own.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "vecadd.h"

static void add(const float* a, const float* b, float* c, size_t elements) {
    for (size_t i = 0; i < elements; ++i) c[i] = a[i] + b[i];
    asm volatile("" : : "r"(c) : "memory");  // c is wanted: an addition that is overwritten later is made all the same
}

int main(int argc, char** argv) {
    if (argc != 6) {
        std::fprintf(stderr, "usage: %s ELEMENTS SEED BUDGET FEWEST MOST\n", argv[0]);
        return 2;
    }
    const size_t elements = std::strtoull(argv[1], nullptr, 10);
    const uint32_t seed = static_cast<uint32_t>(std::strtoull(argv[2], nullptr, 10));
    const double budget = std::strtod(argv[3], nullptr);
    const size_t fewest = std::strtoull(argv[4], nullptr, 10);
    const size_t most = std::strtoull(argv[5], nullptr, 10);

    float* a = static_cast<float*>(std::malloc(elements * sizeof(float)));
    float* b = static_cast<float*>(std::malloc(elements * sizeof(float)));
    float* c = static_cast<float*>(std::malloc(elements * sizeof(float)));
    if (!a || !b || !c) {
        std::fprintf(stderr, "no memory for three vectors of %zu elements\n", elements);
        return 1;
    }
    for (size_t i = 0; i < elements; ++i) {
        a[i] = element(static_cast<uint32_t>(i), 0, seed);
        b[i] = element(static_cast<uint32_t>(i), 1, seed);
        c[i] = NAN;
    }
    add(a, b, c, elements);

    using clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    const auto began = clock::now();
    for (auto now = began; seconds.size() < most;) {
        if (seconds.size() >= fewest && std::chrono::duration<double>(now - began).count() >= budget) break;
        const auto start = clock::now();
        add(a, b, c, elements);
        now = clock::now();
        seconds.push_back(std::chrono::duration<double>(now - start).count());
    }

    std::printf("{\"checksum\": %llu, \"seconds\": [", static_cast<unsigned long long>(checksum(c, elements)));
    for (size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.9f", i ? ", " : "", seconds[i]);
    std::printf("]}\n");
    std::free(a);
    std::free(b);
    std::free(c);
    return 0;
}
