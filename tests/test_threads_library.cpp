// Products, conversions and training: the same bits with any number of threads, for tensors of any size.
#include "computations_trainer.h"

#include <doctest/doctest.h>

using namespace amp::test;

TEST_CASE("products, conversions and training have the same bits for any number of threads") {
    std::vector<Computation> all;
    add_products(all);
    add_conversions(all);
    add_trainings(all);
    check_threads(all);
}
