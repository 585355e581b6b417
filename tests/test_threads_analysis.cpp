// Results about tensors in files: the same bits with any number of threads, for tensors of any size.
#include "computations_findings.h"

#include <doctest/doctest.h>

using namespace amp::test;

TEST_CASE("analyses of tensors have the same bits for any number of threads") {
    std::vector<Computation> all;
    add_analysis(all);
    add_findings(all);
    check_threads(all);
}
