// What a network is trained on: numbered examples, split into a part for training and one for validation.
#pragma once

#include <ampscope/sim/base/tensor.h>

#include <functional>
#include <string>

namespace amp {

struct Dataset {
    std::string name;
    std::string fingerprint{};   ///< of the file that it comes from
    Shape input;                 ///< of one example
    Shape target;                ///< of one example; empty: one number
    std::int64_t vocabulary = 0; ///< inputs are token numbers below it; 0: they are measurements
    std::int64_t classes = 0;    ///< targets are class numbers below it, negative ones do not count; 0: measurements
    std::int64_t training = 0, validation = 0; ///< numbers of examples
    /// Writes example i of training, or of validation from `training` on.
    std::function<void(std::int64_t i, float* input, float* target)> read;
};

} // namespace amp
