// Training data: numbered examples, divided into a part for training and one for validation.
#pragma once

#include <ampscope/sim/base/tensor.h>

#include <functional>
#include <string>

namespace amp {

struct Dataset {
    std::string name;
    std::string fingerprint{};   ///< fingerprint of the file that it was read from
    Shape input;                 ///< shape of one example's input
    Shape target;                ///< shape of one example's target; empty: one number
    std::int64_t vocabulary = 0; ///< inputs are token numbers below it; 0: inputs are real numbers
    std::int64_t classes = 0;    ///< targets are class numbers below it, negative ones ignored; 0: real numbers
    std::int64_t training = 0, validation = 0; ///< numbers of examples
    /// Writes input and target of example i; examples from `training` on are for validation.
    std::function<void(std::int64_t i, float* input, float* target)> read;
};

} // namespace amp
