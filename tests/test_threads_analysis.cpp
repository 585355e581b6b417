// What is told of tensors in files: the same bits with any number of threads, of tensors of any size.
#include "computations_analysis.h"
#include "thread_counts.h"

#include <doctest/doctest.h>

using namespace amp::test;

TEST_CASE("analyses of tensors have the same bits for any number of threads") {
    std::vector<Computation> all;
    add_analysis(all);
    for (const Computation& computation : all) {
        CAPTURE(computation.name);
        const std::string want = computation.bits(1);
        for (const int threads : thread_counts) {
            CAPTURE(threads);
            CHECK(computation.bits(threads) == want);
        }
    }
}
