// What a network is trained on: numbered examples, split into a part for training and one for validation.
#pragma once

#include <ampscope/sim/tensor.h>

#include <filesystem>
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

/// y = w x + noise of deviation 0.1, x of 10 normal numbers; the weights follow from the seed.
Dataset regression_data(std::uint64_t seed);
/// 1797 handwritten digits of 8 x 8 pixels in [0, 1], as images of one channel; one in five for validation.
Dataset digits_data();
/// Sequences "a + b =", the answer (a + b) mod p as the target of the last token; all pairs, one in five for
/// validation.
Dataset modular_data(std::int64_t p);
/// The bytes of a text in windows of `context`, each byte the target of those before it; vocabulary: the bytes that
/// occur. The last tenth is for validation. Throws FileError.
Dataset text_data(const std::filesystem::path& file, std::int64_t context);
/// Arrays x (examples first) and y of an .npz: whole numbers from 0 in a y of one axis are classes. One in five for
/// validation. Throws FileError.
Dataset npz_data(const std::filesystem::path& file);

/// The example at position `i` of an order that visits each of `count` once an epoch, in another order every time.
class Shuffle {
  public:
    Shuffle(std::uint64_t seed, std::int64_t count) : seed_(seed), count_(count) {}
    std::int64_t operator[](std::int64_t i);

  private:
    std::uint64_t seed_;
    std::int64_t count_, epoch_ = -1;
    std::vector<std::int64_t> order_;
};

/// Numbers that look normal, of mean 0 and deviation 1: the sum of twelve uniform ones, less 6. They need no
/// transcendental function, so they are the same everywhere.
double normal(std::uint64_t seed, std::uint32_t stream, std::uint64_t index);
/// In (0, 1).
double uniform(std::uint64_t seed, std::uint32_t stream, std::uint64_t index);

} // namespace amp
