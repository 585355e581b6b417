// Checks that computations give the same bits in every hostile floating-point environment as in the usual one.
#pragma once

#include "computations.h"
#include "hostile.h"
#include "sanitized.h"

#include <doctest/doctest.h>

namespace amp::test {

inline void check_in_every_environment(const std::vector<Computation>& all) {
    std::size_t number = 0;
    for (const Computation& computation : all) {
        CAPTURE(computation.name);
        const std::string want = computation.bits(2);
        for (const std::string_view name : hostile_names) {
            if (!is_due(number++)) continue;
            CAPTURE(name);
            bool same = false, restored = false;
            {
                const Hostile hostile(name);
                same = computation.bits(2) == want;
                restored = hostile.holds();
            }
            CHECK(same);
            CHECK(restored);
        }
    }
}

} // namespace amp::test
