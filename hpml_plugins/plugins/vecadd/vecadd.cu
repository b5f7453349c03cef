// c = a + b of float32 vectors on a GPU: whole runs of the program, timed phase by phase from inside, and its kernel.
//
// vecadd ELEMENTS[,ELEMENTS...] SEED LAUNCH MEMORY BUDGET FEWEST
//
// LAUNCH: 1x1, 1x256 or grid.  MEMORY: explicit (cudaMalloc, cudaMemcpy) or managed (cudaMallocManaged).
// For each length one line of JSON: seconds of each phase of each run, seconds of the kernel over data on the GPU, and
// a checksum of c that the caller compares with its own. A run is repeated until BUDGET seconds have passed and there
// are FEWEST; the first is not counted where it takes less than a second. All lengths but the last are run once.
// Exit status 3: more unified memory is wanted than a quarter of what is free on the GPU.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "vecadd.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                                \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));                    \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (false)

static const double LARGEST_SHARE = 0.25;  // of the GPU's free memory, in unified memory
static const double LONG_RUN = 1.0;  // s: such a run is repeated at most three times and needs no warm-up
static const double LONG_KERNEL = 0.1;  // s: a launch is 0.01 % of it, so it is timed in the runs

// Each thread strides over the vector by the size of the grid; in a grid of one thread per element it adds one.
__global__ void add(const float* a, const float* b, float* c, size_t elements) {
    const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
    size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i < elements; i += step) c[i] = a[i] + b[i];
}

static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds since the last call, once the GPU has done all.
static double lap() {
    static double last = 0.0;
    CHECK(cudaDeviceSynchronize());
    const double reached = now(), seconds = reached - last;
    last = reached;
    return seconds;
}

struct Program {
    size_t elements, bytes;
    unsigned blocks, threads;
    float *a, *b, *c;  // on the host
    float *x, *y, *z;  // on the GPU, or in unified memory

    Program(size_t elements, uint32_t seed, const std::string& launch)
        : elements(elements), bytes(elements * sizeof(float)),
          blocks(launch == "grid" ? static_cast<unsigned>((elements + 255) / 256) : 1u),
          threads(launch == "1x1" ? 1 : 256),
          a(static_cast<float*>(std::malloc(bytes))), b(static_cast<float*>(std::malloc(bytes))),
          c(static_cast<float*>(std::malloc(bytes))) {
        if (!a || !b || !c) {
            std::fprintf(stderr, "no memory for three vectors of %zu elements\n", elements);
            std::exit(1);
        }
        for (size_t i = 0; i < elements; ++i) {
            a[i] = element(static_cast<uint32_t>(i), 0, seed);
            b[i] = element(static_cast<uint32_t>(i), 1, seed);
            c[i] = NAN;
        }
    }
    ~Program() {
        std::free(a);
        std::free(b);
        std::free(c);
    }

    void launch() {
        add<<<blocks, threads>>>(x, y, z, elements);
        CHECK(cudaGetLastError());
    }

    // Seconds of one launch, by events.
    double launched() {
        cudaEvent_t start, end;
        CHECK(cudaEventCreate(&start));
        CHECK(cudaEventCreate(&end));
        CHECK(cudaEventRecord(start));
        launch();
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, start, end));
        CHECK(cudaEventDestroy(start));
        CHECK(cudaEventDestroy(end));
        return milliseconds * 1e-3;
    }

    // Samples of the kernel's seconds. Short launches are queued behind one another, so that the host's time is hidden.
    std::vector<double> kernel(double budget, size_t fewest) {
        launched();
        const double one = launched();
        const int count = static_cast<int>(std::max(1.0, std::min(1000.0, 1e-3 / one)));
        const size_t samples = static_cast<size_t>(std::max(1.0, std::min(63.0, 0.05 / (count * one))));
        std::vector<cudaEvent_t> events(samples + 1);
        for (auto& event : events) CHECK(cudaEventCreate(&event));
        std::vector<double> seconds;
        const double began = now();
        while (seconds.size() < fewest || (now() - began < budget && seconds.size() < 2000)) {
            for (int i = 0; i < count; ++i) launch();  // the GPU is busy while the first event is recorded
            CHECK(cudaEventRecord(events[0]));
            for (size_t sample = 1; sample <= samples; ++sample) {
                for (int i = 0; i < count; ++i) launch();
                CHECK(cudaEventRecord(events[sample]));
            }
            CHECK(cudaDeviceSynchronize());
            for (size_t sample = 1; sample <= samples; ++sample) {
                float milliseconds;
                CHECK(cudaEventElapsedTime(&milliseconds, events[sample - 1], events[sample]));
                seconds.push_back(milliseconds * 1e-3 / count);
            }
        }
        for (auto& event : events) CHECK(cudaEventDestroy(event));
        return seconds;
    }

    void allocate(bool managed) {
        for (float** vector : {&x, &y, &z}) {
            CHECK(managed ? cudaMallocManaged(vector, bytes) : cudaMalloc(vector, bytes));
        }
    }

    void release() {
        for (float* vector : {x, y, z}) CHECK(cudaFree(vector));
    }

    // Seconds of allocation, moving a and b to the GPU, kernel, moving c back, free.
    std::vector<double> run_explicit() {
        std::vector<double> laps;
        lap();
        allocate(false);
        laps.push_back(lap());
        CHECK(cudaMemcpy(x, a, bytes, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(y, b, bytes, cudaMemcpyHostToDevice));
        laps.push_back(lap());
        launch();
        laps.push_back(lap());
        CHECK(cudaMemcpy(c, z, bytes, cudaMemcpyDeviceToHost));
        laps.push_back(lap());
        release();
        laps.push_back(lap());
        return laps;
    }

    // Seconds of allocation, first launch (its page faults move a and b), reading c back, free. The host's writing of a
    // and b into unified memory is not counted, as their making is not in the other program.
    std::vector<double> run_managed() {
        std::vector<double> laps;
        lap();
        allocate(true);
        laps.push_back(lap());
        std::memcpy(x, a, bytes);
        std::memcpy(y, b, bytes);
        lap();
        launch();
        laps.push_back(lap());
        std::memcpy(c, z, bytes);
        laps.push_back(lap());
        release();
        laps.push_back(lap());
        return laps;
    }
};

static void print(const char* name, const std::vector<double>& numbers) {
    std::printf("\"%s\": [", name);
    for (size_t i = 0; i < numbers.size(); ++i) std::printf("%s%.9g", i ? ", " : "", numbers[i]);
    std::printf("], ");
}

int main(int argc, char** argv) {
    if (argc != 7) {
        std::fprintf(stderr, "usage: %s ELEMENTS[,ELEMENTS...] SEED LAUNCH MEMORY BUDGET FEWEST\n", argv[0]);
        return 2;
    }
    std::vector<size_t> lengths;
    for (char* next = argv[1]; *next; next += *next == ',') lengths.push_back(std::strtoull(next, &next, 10));
    const uint32_t seed = static_cast<uint32_t>(std::strtoull(argv[2], nullptr, 10));
    const std::string launch = argv[3];
    const bool managed = std::string(argv[4]) == "managed";
    const double budget = std::strtod(argv[5], nullptr);
    const std::vector<const char*> phases = managed
        ? std::vector<const char*>{"allocation", "first_touch", "read_back", "free"}
        : std::vector<const char*>{"allocation", "h2d", "kernel", "d2h", "free"};
    CHECK(cudaFree(nullptr));  // the context
    size_t unused, all;
    CHECK(cudaMemGetInfo(&unused, &all));
    const double wanted = 3.0 * sizeof(float) * lengths.back();
    if (managed && wanted > LARGEST_SHARE * unused) {
        std::fprintf(stderr,
                     "wants %.2f GiB of unified memory, more than a quarter of the %.2f GiB that are free on the card\n",
                     wanted / (1 << 30), static_cast<double>(unused) / (1 << 30));
        return 3;
    }

    for (size_t number = 0; number < lengths.size(); ++number) {
        const bool timed = number + 1 == lengths.size();
        Program program(lengths[number], seed, launch);
        std::vector<std::vector<double>> laps(phases.size());
        size_t fewest = timed ? std::strtoull(argv[6], nullptr, 10) : 1;
        bool warm = !timed;
        const double began = now();
        while (laps[0].size() < fewest || (timed && now() - began < budget)) {
            const auto run = managed ? program.run_managed() : program.run_explicit();
            double total = 0.0;
            for (const double seconds : run) total += seconds;
            if (total > LONG_RUN) fewest = std::min<size_t>(fewest, 3);
            if (!warm && total < LONG_RUN) {
                warm = true;
                continue;
            }
            for (size_t phase = 0; phase < run.size(); ++phase) laps[phase].push_back(run[phase]);
        }
        const uint64_t sum = checksum(program.c, program.elements);
        std::vector<double> kernel;
        if (timed && !managed && laps[2][0] >= LONG_KERNEL) {
            kernel = laps[2];
        } else if (timed) {
            program.allocate(managed);
            CHECK(cudaMemcpy(program.x, program.a, program.bytes, cudaMemcpyDefault));
            CHECK(cudaMemcpy(program.y, program.b, program.bytes, cudaMemcpyDefault));
            const double first = program.launched();  // moves the pages of unified memory
            if (first < LONG_KERNEL) kernel = program.kernel(budget, 10);
            for (int i = 0; i < 2 && first >= LONG_KERNEL; ++i) kernel.push_back(program.launched());
            program.release();
        }
        std::printf("{\"checksum\": %llu, ", static_cast<unsigned long long>(sum));
        for (size_t phase = 0; phase < phases.size(); ++phase) print(phases[phase], laps[phase]);
        print("time", kernel);
        std::printf("\"blocks\": %u, \"threads\": %u}\n", program.blocks, program.threads);
    }
    return 0;
}
